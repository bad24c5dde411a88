"""Events: equal ones are counted in one object."""

from __future__ import annotations

import asyncio

from clusters.base.objects import EVENT, MODEL
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.recorder import Recorder
from tests.support.clock import SteppedClock


async def test_the_same_words_are_counted_and_others_stand_beside(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    recorder = Recorder(cluster, "tests", clock)
    about = await cluster.create(MODEL, {"metadata": {"name": "a", "namespace": "ns"}}, manager="t")
    await recorder.event(MODEL, about, "Normal", "Created", "it is there")
    clock.step(60)
    await recorder.event(MODEL, about, "Normal", "Created", "it is there")
    await recorder.event(MODEL, about, "Warning", "Failed", "it is not")
    events = {event["reason"]: event for event in (await cluster.list(EVENT, "ns")).items}
    assert events["Created"]["count"] == 2
    assert events["Created"]["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert events["Created"]["lastTimestamp"] == "2026-01-01T00:01:00Z"
    assert events["Created"]["involvedObject"]["uid"] == about["metadata"]["uid"]
    assert (events["Failed"]["count"], events["Failed"]["type"]) == (1, "Warning")


async def test_two_at_once_and_the_longest_names_do_no_harm(cluster: EmbeddedCluster) -> None:
    recorder = Recorder(cluster, "tests", SteppedClock())
    name = "a" * 199 + "-" + "b" * 53
    about = await cluster.create(MODEL, {"metadata": {"name": name, "namespace": "ns"}}, manager="t")
    await asyncio.gather(*(recorder.event(MODEL, about, "Normal", "Created", "it is there") for _ in range(2)))
    assert len((await cluster.list(EVENT, "ns")).items) == 1
