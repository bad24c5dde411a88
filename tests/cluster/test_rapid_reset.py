"""HTTP/2 rapid reset (CVE-2023-44487) at a real cluster's ingress: Kourier's Envoy ends the connection.

As at the gateway of the embedded platform (`tests/long/test_rapid_reset.py`): others are answered meanwhile, and no
request of those that were taken back stays in the model.
"""

from __future__ import annotations

import json

import aiohttp

from clusters.base.api import Cluster
from clusters.base.objects import POD, is_deleting
from clusters.net.endpoints import endpoint_of
from serving.types.annotations import LABEL_MODEL
from tests.cluster.test_framing import NAME, PATH, Door, framed
from tests.long.test_rapid_reset import SHAPES, attack
from tests.scenarios.world import infer_body
from tests.support.http2 import answered, post
from tests.support.prober import probing
from tests.support.wait import eventually

JSON = "application/json"
BODY = json.dumps(infer_body(1.0)).encode()
RATE = 10.0  # requests a second of others
WITHIN = 60.0  # s

__all__ = ["framed"]


async def test_the_ingress_ends_the_connection_and_leaves_no_request_behind(
    cluster: Cluster, namespace: str, framed: Door
) -> None:
    address = (framed.address, framed.port)
    head = post(framed.host, PATH, JSON)
    assert await answered(address, head, BODY)
    url = f"http://{framed.address}:{framed.port}{PATH}"
    async with probing(url, {"host": framed.host, "content-type": JSON}, infer_body(1.0), RATE) as probes:
        for shape, (whole, begun) in SHAPES.items():
            talks = await attack(address, head, BODY if whole else b"", begun)
            assert all(talk.refused for talk in talks), (shape, talks)
    assert probes.answered and not probes.failures
    await eventually(lambda: at_rest(cluster, namespace), WITHIN)
    assert await answered(address, head, BODY)


async def at_rest(cluster: Cluster, namespace: str) -> bool:
    """No request in any of the model's servers."""
    pods = (await cluster.list(POD, namespace, f"{LABEL_MODEL}={NAME}")).items
    found = [endpoint_of(pod) for pod in pods if not is_deleting(pod)]
    loads = []
    async with aiohttp.ClientSession() as session:
        for endpoint in found:
            assert endpoint is not None
            async with session.get(f"http://{endpoint.host}:{endpoint.management_port}/stats") as answer:
                page = await answer.json(content_type=None)
                loads.append((page["active"], page["queued"]))
    return set(loads) == {(0, 0)}
