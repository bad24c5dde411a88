"""The embedded cluster beyond the contract that all adapters share."""

from __future__ import annotations

from clusters.embedded.cluster import EmbeddedCluster
from clusters.objects import MODEL


async def test_an_object_is_there_after_it_was_created(cluster: EmbeddedCluster) -> None:
    made = await cluster.create(
        MODEL, {"metadata": {"name": "m", "namespace": "default"}, "spec": {"a": 1}}, manager="t"
    )
    assert await cluster.get(MODEL, "m", "default") == made
    again = await cluster.apply(
        MODEL, {"metadata": {"name": "m", "namespace": "default"}, "spec": {"b": 2}}, manager="other"
    )
    assert again["spec"] == {"a": 1, "b": 2}
    assert again["metadata"]["generation"] == 2
