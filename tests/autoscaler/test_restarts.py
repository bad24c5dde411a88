"""Restarts: the Pods named on a PodAutoscaler are replaced one after another, by one replica more than desired."""

from __future__ import annotations

import pytest

from autoscaler.reconciler.observed import ObservedRevision
from autoscaler.reconciler.scale_down_order import DELETION_COST, FIRST, cost_changes
from autoscaler.types import RESTART_ANNOTATION, Policy
from autoscaler.warmpool.claims.marks import ANNOTATION_CLAIM
from clusters.base.objects import POD, POD_AUTOSCALER, Object, annotations_of, name_of
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.test_scale_down_order import pod
from tests.autoscaler.world import REVISION_NAME, World, running
from tests.support.clock import SteppedClock

OLD = [pod("a"), pod("b")]
NEW, STARTING = pod("new"), pod("new", ready=False)
GOING = pod("b", deleting=True)
BROKEN = pod("b", ready=False)
CLAIMED = pod("new")
CLAIMED["metadata"]["annotations"] = {ANNOTATION_CLAIM: "{}"}


def observed(pods: list[Object], restart: str = "a,b") -> ObservedRevision:
    """Return a revision with these Pods, of which `restart` names those to replace."""
    return ObservedRevision({"metadata": {"annotations": {RESTART_ANNOTATION: restart}}}, None, None, (), pods)


@pytest.mark.parametrize(
    ("pods", "desired", "surge"),
    [
        (OLD, 2, 1),
        ([*OLD, STARTING], 2, 1),
        ([*OLD, NEW], 2, 0),
        ([pod("a"), GOING, NEW], 2, 1),
        ([pod("a"), BROKEN, NEW], 2, 0),
        ([pod("a"), BROKEN, STARTING], 2, 1),
        (OLD, 1, 0),
        (OLD, 0, 0),
        ([NEW], 1, 0),
        ([pod("a", deleting=True), NEW], 1, 0),
        ([*OLD, CLAIMED], 2, 1),  # the Deployment has no room for it yet
    ],
)
def test_one_more_replica_is_wanted_until_a_new_one_is_ready(pods: list[Object], desired: int, surge: int) -> None:
    assert observed(pods).surge(desired) == surge


def test_pods_that_are_not_named_are_not_restarted() -> None:
    assert observed(OLD, restart="").surge(2) == 0
    assert observed(OLD, restart="of-another-revision").surge(2) == 0


def test_a_pod_of_the_restart_goes_before_idle_ones() -> None:
    pods, busy = [pod("old"), pod("new"), pod("idle")], {"default/old": 4.0, "default/new": 1.0, "default/idle": 0.0}

    assert [(name_of(one), cost) for one, cost in cost_changes(pods, busy, 1, {"old"})] == [("old", FIRST)]
    assert [name_of(one) for one, _ in cost_changes(pods, dict.fromkeys(busy, 0.0), 1, {"old"})] == ["old"]


async def test_replicas_are_replaced_in_turns(cluster: EmbeddedCluster) -> None:
    policy = Policy(min_replicas=2, max_replicas=2, scale_to_zero_after=600.0)
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(policy, replicas=2)
        old = {await world.start_pod() for _ in range(2)}
        await world.until(world.mode, "Serve")
        await world.report_services(in_path=False)
        await world.until(lambda: world.condition("ScaleTargetInitialized"), ("True", ""))

        restart = {"metadata": {"annotations": {RESTART_ANNOTATION: ",".join(old)}}}
        await cluster.patch(POD_AUTOSCALER, REVISION_NAME, restart, "default", manager="knodel")
        for left in (1, 0):
            await world.until(world.replicas_asked, 3)
            await world.start_pod()
            await world.until(world.replicas_asked, 2)
            pods = (await cluster.list(POD, "default")).items
            [gone] = [name_of(one) for one in pods if annotations_of(one).get(DELETION_COST) == FIRST]
            assert gone in old
            await world.stop_pod(gone)
            old.discard(gone)
            assert len(old) == left

        await world.pass_time(3.0)
        assert await world.replicas_asked() == 2
        assert (await world.pod_autoscaler())["status"]["actualScale"] == 2


async def test_the_additional_replica_does_not_become_a_desired_one(cluster: EmbeddedCluster) -> None:
    policy = Policy(min_replicas=1, max_replicas=4, scale_to_zero_after=600.0)
    async with running(World(cluster, SteppedClock())) as world:
        await world.create_revision(policy, replicas=1)
        old = await world.start_pod()
        await world.until(world.mode, "Serve")
        await world.report_services(in_path=False)
        await world.until(lambda: world.condition("ScaleTargetInitialized"), ("True", ""))

        restart = {"metadata": {"annotations": {RESTART_ANNOTATION: old}}}
        await cluster.patch(POD_AUTOSCALER, REVISION_NAME, restart, "default", manager="knodel")
        await world.until(world.replicas_asked, 2)
        await world.pass_time(4.0)  # decisions while the new replica starts
        await world.start_pod()

        await world.until(world.replicas_asked, 1)
        assert (await world.pod_autoscaler())["status"]["desiredScale"] == 1
