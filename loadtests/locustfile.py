"""The locust file for people: `locust -f loadtests/locustfile.py -H http://127.0.0.1:8080 --model NAME --rate 50`.

It is that of the installed product, which `knodel bench` runs. docs/bench.md describes it.
"""

from serving.loadtest.locust.locustfile import ChatUser, InferUser, Shape

__all__ = ["ChatUser", "InferUser", "Shape"]
