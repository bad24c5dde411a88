"""Events and conditions about replicas and activators that do not answer."""

from __future__ import annotations

import pytest

from autoscaler.reconciler.metrics_availability import ACTIVATORS, AFTER, REPLICAS, MetricsAvailability
from clusters.base.objects import EVENT, Key, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.recorder import Recorder
from tests.support.clock import SteppedClock

KEY, OTHER = Key("default", "m-00001"), Key("default", "m-00002")
AUTOSCALER: Object = {"metadata": {"name": "m-00001", "namespace": "default", "uid": "u1"}}


class Scene:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clock = SteppedClock()
        self.signal_available = True
        self.silences = MetricsAvailability(
            Recorder(cluster, "test", self.clock), self.clock, lambda: self.signal_available
        )

    async def told(self, autoscaler: Object = AUTOSCALER, *, may_be_zero: bool = True) -> list[tuple[str, str, int]]:
        await self.silences.record_event(KEY, autoscaler, may_be_zero=may_be_zero)
        events = (await self.cluster.list(EVENT)).items
        return sorted((event["reason"], event["message"], event["count"]) for event in events)

    def observe(self, *heard: Key) -> list[Key]:
        return self.silences.observe((KEY, OTHER), heard)


@pytest.fixture
def scene(cluster: EmbeddedCluster) -> Scene:
    return Scene(cluster)


async def test_replicas_that_are_silent_for_a_while_are_told_once_and_once_that_they_are_heard_again(
    scene: Scene,
) -> None:
    assert scene.observe(OTHER) == []
    scene.clock.step(AFTER - 1.0)
    assert scene.observe(OTHER) == [] and await scene.told() == []
    scene.clock.step(1.0)
    assert scene.observe(OTHER) == [KEY]
    unavailable = ("MetricsUnavailable", REPLICAS, 1)
    assert await scene.told() == [unavailable]
    assert scene.observe(OTHER) == [] and await scene.told() == [unavailable]
    assert scene.observe(KEY, OTHER) == [KEY]
    assert await scene.told() == [("MetricsAvailable", "metrics are available again", 1), unavailable]
    assert scene.observe(KEY, OTHER) == []


async def test_a_revision_whose_silent_replicas_have_gone_is_not_silent_any_more(scene: Scene) -> None:
    scene.observe(OTHER)
    scene.clock.step(AFTER)
    assert scene.observe(OTHER) == [KEY]
    await scene.told()

    assert scene.silences.observe([OTHER], [OTHER]) == [KEY]
    assert scene.silences.message(KEY, may_be_zero=True) == ""
    assert [reason for reason, _, _ in await scene.told()] == ["MetricsAvailable", "MetricsUnavailable"]
    assert scene.silences.observe([OTHER], [OTHER]) == []

    scene.clock.step(AFTER)
    assert scene.observe(OTHER) == [], "a new replica's silence begins with its own first one"


async def test_activators_that_are_not_heard_are_told_where_it_matters(scene: Scene) -> None:
    scene.signal_available = False
    assert await scene.told(may_be_zero=False) == []
    assert await scene.told() == [("MetricsUnavailable", ACTIVATORS, 1)]
    scene.signal_available = True
    assert [reason for reason, _, _ in await scene.told()] == ["MetricsAvailable", "MetricsUnavailable"]


async def test_a_namesake_is_told_for_itself(scene: Scene) -> None:
    scene.signal_available = False
    await scene.told()
    namesake = {"metadata": {**AUTOSCALER["metadata"], "uid": "u2"}}
    assert len(await scene.told(namesake)) == 2
    scene.silences.forget(KEY)
    scene.signal_available = True
    assert len(await scene.told(namesake)) == 2
