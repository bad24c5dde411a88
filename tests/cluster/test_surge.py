"""Rollouts where replicas are short, on the installed platform: turns within the surge, and what is seen without room.

The node has a resource of the tests' own making, as it has GPUs, and every container of the namespace takes one of it:
queue-proxy's as well, so a replica takes two. How many replicas there is room for, a patch of the node's status says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.objects import MODEL, NODE, POD, REVISION, Kind, Object, condition_of, is_deleting, name_of, uid_of
from clusters.net.endpoints import is_ready
from serving.reconciler.rollout.commands import rollback
from serving.reconciler.rollout.state import RolloutState, rollout_of
from serving.types.annotations import LABEL_MODEL
from serving.types.settings.settings import Settings
from tests.cluster.node_resources import set_node_resource
from tests.cluster.place import MANAGER, PATIENCE, SMALL
from tests.scenarios.world import SOON, World, reason_of, traffic_of
from tests.support.artifacts import ArtifactServer

pytestmark = pytest.mark.timeout(480)

LIMIT_RANGE = Kind("", "v1", "LimitRange", "limitranges", status=False)
SLOT = "knodel.test/slot"
EACH = 2
"""Slots of a replica."""
SHORT = f"Insufficient {SLOT}"
"""The scheduler's words."""
STOOD = 2
"""Replicas of the version before."""
LONG = 60.0
"""s, times the world's patience, for several turns: each waits until a replica has drained, for half a minute."""
OLD, NEW = "scarce-00001", "scarce-00002"
QUICK: dict[str, Any] = {
    "steps": [20, 100], "stepDuration": "2s", "judge": {"interval": "1s", "maxLatencyRatio": 100},
    "onInsufficientTraffic": "promote",
}  # fmt: skip


class Scarce:
    """The Model `scarce` of always two replicas, and a node with so much room for them as is said."""

    def __init__(self, cluster: Cluster, world: World, namespace: str, node: str) -> None:
        self.cluster = cluster
        self.world = world
        self.namespace = namespace
        self._node = node

    async def has_room(self, replicas: int | None) -> None:
        """Room on the node for so many replicas from now on; None takes the resource off it."""
        units = None if replicas is None else replicas * EACH
        await set_node_resource(self.cluster, self.world, self._node, SLOT, units)

    async def deploy(self, artifact: str, *, wait: bool = False, **spec: Any) -> None:
        """The Model with this artifact and these fields."""
        fields = {"minReplicas": STOOD, "maxReplicas": STOOD, **spec}
        uri = self.world.artifacts(artifact)
        await self.world.deploy("scarce", namespace=self.namespace, wait=wait, storageUri=uri, **fields)

    async def until(self, holds: Callable[[Object], bool], within: float = LONG) -> Object:
        """The Model once it is so."""
        return await self.world.until("scarce", holds, self.namespace, within)

    async def rollout_is(self, phase: str, percent: int | None = None) -> RolloutState:
        """The rollout once it has come there, and a probe has seen it at the gateway."""

        def holds(found: Object) -> bool:
            state = rollout_of(found)
            if state is None or state.phase != phase:
                return False
            return percent is None or (state.percent == percent and traffic_of(found).get(NEW) == percent)

        state = rollout_of(await self.until(holds))
        assert state is not None
        return state

    async def replicas(self, revision: str = "") -> list[Object]:
        """Pods of the revision, or of the Model, that are not leaving."""
        pods = (await self.cluster.list(POD, self.namespace, f"{LABEL_MODEL}=scarce")).items
        return [pod for pod in pods if name_of(pod).startswith(revision) and not is_deleting(pod)]

    async def are_ready(self, revision: str) -> set[str]:
        """The uids of the revision's replicas once all of those that stood are ready."""

        async def all_there() -> set[str]:
            found = {uid_of(pod) for pod in await self.replicas(revision) if is_ready(pod)}
            return found if len(found) == STOOD else set()

        return await self.world.eventually(all_there, LONG)

    async def waits_for_a_place(self, revision: str) -> None:
        """Return once the scheduler says of one of the revision's replicas that it lacks our resource."""

        async def is_homeless() -> bool:
            said = [condition_of(pod, "PodScheduled") or {} for pod in await self.replicas(revision)]
            return any(one.get("status") == "False" and SHORT in one.get("message", "") for one in said)

        await self.world.eventually(is_homeless)

    async def answers(self) -> set[str]:
        """The revisions that answer twenty requests, and every failure."""
        found = [await self.world.ask("scarce", namespace=self.namespace) for _ in range(20)]
        return {one.revision if one.status == 200 else f"{one.status} {one.body}" for one in found}


@pytest.fixture
async def scarce(
    cluster: Cluster, installed: Settings, namespace: str, artifacts: ArtifactServer
) -> AsyncIterator[Scarce]:
    """The installed platform, and a namespace whose containers take a slot each."""
    gateway = installed.gateway
    address = f"http://{gateway.address}:{gateway.port}"
    world = World(cluster, address, gateway.domain, artifacts.uri, defaults=SMALL, patience=PATIENCE)
    one = {"type": "Container", "default": {SLOT: "1"}, "defaultRequest": {SLOT: "1"}}
    limits = {"metadata": {"name": "slots", "namespace": namespace}, "spec": {"limits": [one]}}
    await cluster.create(LIMIT_RANGE, limits, manager=MANAGER)
    [node, *_] = [one for one in (await cluster.list(NODE)).items if not one["spec"].get("unschedulable")]
    made = Scarce(cluster, world, namespace, name_of(node))
    try:
        yield made
    finally:
        await made.has_room(None)
        await world.sweep()
        await world.close()


async def test_a_rollout_goes_through_with_room_for_one_replica_more_and_the_version_before_stays_warm(
    scarce: Scarce,
) -> None:
    await scarce.has_room(STOOD + 1)
    await scarce.deploy("double", wait=True, rollout=QUICK)
    stood, most = await scarce.are_ready(OLD), 0
    async with scarce.world.under_load("scarce", 1, namespace=scarce.namespace) as load:
        await scarce.deploy("triple")

        async def is_promoted() -> bool:
            nonlocal most
            most = max(most, len(await scarce.replicas()))
            state = rollout_of(await scarce.cluster.get(MODEL, "scarce", scarce.namespace))
            return state is not None and state.phase == "Promoted"

        await scarce.world.eventually(is_promoted, LONG)
        await scarce.are_ready(NEW)
        assert await scarce.answers() == {NEW}

        warm = {uid_of(pod) for pod in await scarce.replicas(OLD) if is_ready(pod)}
        model = await scarce.cluster.get(MODEL, "scarce", scarce.namespace)
        revisions = (await scarce.cluster.list(REVISION, scarce.namespace)).items
        back = rollback(model, revisions)
        await scarce.cluster.patch(MODEL, "scarce", back, scarce.namespace, manager=MANAGER)
        await scarce.until(lambda found: traffic_of(found) == {OLD: 100})
        assert await scarce.answers() == {OLD}

    assert load.failures == []
    assert set(load.answers) == {OLD, NEW}
    assert most == STOOD + 1
    assert len(warm) == 1 and warm < stood
    assert warm <= {uid_of(pod) for pod in await scarce.replicas(OLD)}


@pytest.mark.fault("A11")
async def test_a_step_whose_replicas_find_no_place_goes_back_at_the_deadline_to_replicas_that_stood(
    scarce: Scarce,
) -> None:
    patient = {**QUICK, "stepDuration": "10s", "progressDeadline": "30s"}
    await scarce.has_room(STOOD + 1)
    await scarce.deploy("double", wait=True, rollout=patient)
    stood = await scarce.are_ready(OLD)
    async with scarce.world.under_load("scarce", 1, namespace=scarce.namespace) as load:
        await scarce.deploy("triple")
        await scarce.rollout_is("Progressing", 20)
        await scarce.has_room(STOOD)  # one replica of each version will fill it
        await scarce.rollout_is("Progressing", 50)
        await scarce.waits_for_a_place(NEW)
        state = await scarce.rollout_is("RolledBack")
        await scarce.until(lambda found: traffic_of(found) == {OLD: 100})
        assert await scarce.answers() == {OLD}
        again = await scarce.are_ready(OLD)

    assert state.reasons == ("step 2 (100 %) was not in force within 30 s: only 50 % was",)
    assert load.failures == []
    assert len(again & stood) == 1  # the warm one; the other has come back to the place that the candidate left
    assert await scarce.answers() == {OLD}


@pytest.mark.fault("A11")
async def test_a_version_without_any_place_says_so_and_the_one_before_keeps_all_its_replicas(scarce: Scarce) -> None:
    await scarce.has_room(STOOD)
    await scarce.deploy("double", wait=True, rollout=QUICK)
    stood = await scarce.are_ready(OLD)
    async with scarce.world.under_load("scarce", 1, namespace=scarce.namespace) as load:
        await scarce.deploy("triple", startupDeadline=SOON)
        found = await scarce.until(lambda model: SHORT in reason_of(model))
        waiting = rollout_of(found)
        state = await scarce.rollout_is("Failed")
        assert await scarce.are_ready(OLD) == stood

    assert waiting is not None and (waiting.phase, waiting.percent) == ("Progressing", 0)
    assert state.passed == () and state.reasons[0].startswith(NEW)
    assert load.failures == [] and set(load.answers) == {OLD}


async def test_a_rollout_without_a_surge_goes_through_in_the_places_that_the_version_before_has(
    scarce: Scarce,
) -> None:
    swapping = {**QUICK, "maxSurge": 0, "keepWarm": "1s"}
    await scarce.has_room(STOOD)
    await scarce.deploy("double", wait=True, rollout=swapping, scaleToZeroAfter="6s")
    await scarce.are_ready(OLD)
    async with scarce.world.under_load("scarce", 1, namespace=scarce.namespace) as load:
        await scarce.deploy("triple")
        await scarce.rollout_is("Promoted")
        await scarce.are_ready(NEW)
        assert await scarce.answers() == {NEW}

    assert load.failures == []
    assert await scarce.replicas(OLD) == []
