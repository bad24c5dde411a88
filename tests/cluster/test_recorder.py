"""Events on a real API server, which refuses what does not fit."""

from __future__ import annotations

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import CONFIG_MAP, EVENT, NAMESPACE, Kind, Object
from clusters.runtime.recorder import Recorder


@pytest.fixture
async def about(cluster: Cluster, namespace: str) -> Object:
    """Something to tell of."""
    obj: Object = {"metadata": {"name": "thing", "namespace": namespace}}
    return await cluster.create(CONFIG_MAP, obj, manager="tests")


async def told(cluster: Cluster, namespace: str, reason: str) -> list[Object]:
    """The Events with that reason."""
    return [event for event in (await cluster.list(EVENT, namespace)).items if event["reason"] == reason]


async def test_the_same_words_are_counted(cluster: Cluster, namespace: str, about: Object) -> None:
    recorder = Recorder(cluster, "tests", SystemClock())
    for _ in range(3):
        await recorder.event(CONFIG_MAP, about, "Normal", "Counted", "it is there")
    await recorder.event(CONFIG_MAP, about, "Warning", "Counted", "x" * 900)
    counts = sorted(event["count"] for event in await told(cluster, namespace, "Counted"))
    assert counts == [1, 3]
    (event, *_) = await told(cluster, namespace, "Counted")
    assert event["involvedObject"]["namespace"] == namespace


@pytest.mark.parametrize("length", [1024, 5000])
async def test_long_words_are_told(cluster: Cluster, namespace: str, about: Object, length: int) -> None:
    await Recorder(cluster, "tests", SystemClock()).event(CONFIG_MAP, about, "Warning", "Long", "x" * length)
    assert await told(cluster, namespace, "Long")


async def test_an_object_without_namespace_has_its_events_in_default(cluster: Cluster, namespace: str) -> None:
    kind: Kind = NAMESPACE
    about = await cluster.get(kind, namespace)
    recorder = Recorder(cluster, "tests", SystemClock())
    await recorder.event(kind, about, "Normal", "Seen", "it is there")
    (event,) = [one for one in await told(cluster, "default", "Seen") if one["involvedObject"]["name"] == namespace]
    await cluster.delete(EVENT, event["metadata"]["name"], "default")
