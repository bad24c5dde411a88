"""What the autoscaler hears, and what it does not, as metrics of its process."""

from __future__ import annotations

from autoscaler.metrics.activators import ActivatorPoller
from autoscaler.metrics.collector import Collector
from clusters.runtime.manager.metrics import Family, one


def poller_families(poller: ActivatorPoller) -> list[Family]:
    """Polls of activators."""
    counts = poller.counts
    results = (
        ({"result": "answered"}, float(counts.polls - counts.rejected - counts.unanswered)),
        ({"result": "rejected"}, float(counts.rejected)),
        ({"result": "unanswered"}, float(counts.unanswered)),
    )
    return [
        one("knodel_activators_heard", "gauge", "1 while a request that waits would be noticed.", float(poller.hears)),
        Family("knodel_activator_polls_total", "counter", "Polls of Knative's activators, by result.", results),
    ]


def collector_families(collector: Collector) -> list[Family]:
    """Readings of replicas."""
    results = (
        ({"result": "read"}, float(collector.accepted)),
        ({"result": "rejected"}, float(collector.rejected)),
        ({"result": "unanswered"}, float(collector.unanswered)),
    )
    return [Family("knodel_samples_total", "counter", "Readings of replicas, by result.", results)]
