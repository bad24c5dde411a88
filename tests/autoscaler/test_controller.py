"""The autoscaler over a real embedded cluster: the contents of the objects, and the order of writes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from autoscaler.config import AutoscalerSettings, DecisionSettings, Records, Zero
from autoscaler.knative_annotations import PROGRESS_DEADLINE
from autoscaler.metrics.stat import Sample
from autoscaler.types import Policy, read_entries
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.objects import (
    DEPLOYMENT,
    EVENT,
    POD_AUTOSCALER,
    REVISION,
    SERVERLESS_SERVICE,
    Kind,
    controller_of,
    owner_reference,
    uid_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.net.endpoints import Endpoint
from tests.autoscaler.world import DEPLOYMENT_NAME, REVISION_NAME, World, running
from tests.support.clock import SteppedClock


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as world:
        yield world


async def serving(world: World, policy: Policy | None = None) -> str:
    """Create a revision with one ready replica that serves; return the replica."""
    await world.create_revision(policy or Policy(scale_to_zero_after=10.0))
    await world.until(world.mode, "Proxy")
    pod = await world.start_pod()
    await world.until(world.mode, "Serve")
    await world.report_services(in_path=False)
    await world.until(lambda: world.condition("Ready"), ("True", ""))
    return pod


async def at_zero(world: World, policy: Policy | None = None) -> None:
    pod = await serving(world, policy)
    await world.pass_time(12.0)
    await world.until(world.mode, "Proxy")
    await world.report_services(in_path=True)
    await world.until(world.replicas_asked, 0)
    await world.stop_pod(pod)
    await world.until(lambda: world.condition("Active"), ("False", "NoTraffic"))


async def test_a_new_revision_gets_its_serverless_service_before_anything_is_ready(world: World) -> None:
    await world.create_revision(Policy())
    await world.until(world.mode, "Proxy")
    service = await world.get(SERVERLESS_SERVICE, REVISION_NAME)
    owner = controller_of(service)
    assert owner is not None and owner["uid"] == uid_of(await world.pod_autoscaler())
    assert service["spec"]["objectRef"]["name"] == DEPLOYMENT_NAME
    await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))
    assert await world.condition("ScaleTargetInitialized") == ("Unknown", "")


async def test_it_is_initialized_only_once_the_service_name_is_known_and_a_replica_ready(world: World) -> None:
    await world.create_revision(Policy())
    await world.until(world.mode, "Proxy")
    await world.start_pod()
    await world.until(world.mode, "Serve")
    assert await world.condition("ScaleTargetInitialized") == ("Unknown", "")
    await world.report_services(in_path=False)
    await world.until(lambda: world.condition("ScaleTargetInitialized"), ("True", ""))
    await world.until(lambda: world.condition("Ready"), ("True", ""))
    status = (await world.pod_autoscaler())["status"]
    assert status["serviceName"] == REVISION_NAME
    assert status["metricsServiceName"] == f"{REVISION_NAME}-private"
    assert (status["desiredScale"], status["actualScale"], status["observedGeneration"]) == (1, 1, 1)


async def test_an_idle_revision_goes_to_zero_only_after_the_activator_is_in_its_path(world: World) -> None:
    await serving(world)
    await world.pass_time(12.0)
    await world.until(world.mode, "Proxy")
    await world.until(lambda: world.condition("Active"), ("False", "NoTraffic"))
    assert await world.condition("ScaleTargetInitialized") == ("True", "")
    await world.pass_time(5.0)
    assert await world.replicas_asked() == 1
    await world.report_services(in_path=True)
    await world.until(world.replicas_asked, 0)


@pytest.mark.fault("A10")
async def test_a_request_that_comes_on_the_way_to_zero_cancels_it(world: World) -> None:
    pod = await serving(world)
    await world.pass_time(12.0)
    await world.until(world.mode, "Proxy")
    world.replicas.serve(pod)  # by the old path, and already answered
    await world.report_services(in_path=True)
    await world.until(world.mode, "Serve")
    assert await world.replicas_asked() == 1
    await world.until(lambda: world.condition("Active"), ("True", ""))


async def test_a_request_in_flight_keeps_the_last_replica(world: World) -> None:
    pod = await serving(world)
    world.replicas.work(pod, 1.0)
    await world.pass_time(30.0)
    assert await world.mode() == "Serve"
    world.replicas.work(pod, 0.0)
    await world.pass_time(13.0)
    await world.until(world.mode, "Proxy")


async def test_a_replica_that_does_not_say_whether_it_is_idle_stays(world: World) -> None:
    pod = await serving(world)
    await world.pass_time(12.0)
    await world.until(world.mode, "Proxy")
    world.replicas.silent.add(pod)
    await world.report_services(in_path=True)
    await world.pass_time(5.0)
    assert await world.replicas_asked() == 1


async def test_a_waiting_request_wakes_a_revision_at_zero_without_a_tick(world: World) -> None:
    await at_zero(world)
    world.activator.holds(queued=1)
    await world.until(world.replicas_asked, 1)
    await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))
    await world.start_pod()
    world.activator.holds(queued=0, active=1)
    await world.until(world.mode, "Serve")
    await world.until(lambda: world.condition("Active"), ("True", ""))


async def test_what_was_answered_before_the_scale_is_no_reason_to_go_back_to_zero(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_zero(world)
    scale = world.cluster.scale

    async def answer_then_scale(*args: Any, **options: Any) -> Any:
        await world.start_pod()  # as a member of a warm pool: it serves while the Deployment still has no replica
        world.activator.holds(queued=0)
        return await scale(*args, **options)

    monkeypatch.setattr(world.cluster, "scale", answer_then_scale)
    world.activator.holds(queued=1)
    await world.until(world.replicas_asked, 1)
    await world.until(lambda: world.condition("Active"), ("True", ""))
    world.clock.step(1.0)
    await world.set_policy(Policy(scale_to_zero_after=11.0).to_json())
    await world.until(lambda: steps(world), [(1, 0), (0, 1)])


async def test_many_waiting_requests_wake_as_many_replicas_as_they_fill_up_to_the_limit(
    cluster: EmbeddedCluster,
) -> None:
    starting_in_a_second = AutoscalerSettings(
        scaling=DecisionSettings(assumed_start_time=1.0)
    )  # so that no others are expected to come
    async with running(World(cluster, SteppedClock(), starting_in_a_second)) as world:
        await at_zero(world, Policy(scale_target=2, target_utilization=1, max_replicas=6, scale_to_zero_after=10))
        world.activator.holds(queued=8)
        await world.until(world.replicas_asked, 4)
        await world.pass_time(3.0)
        assert await world.replicas_asked() == 4, "what starts will serve what waits"
        world.activator.holds(queued=100)
        await world.pass_time(1.0)
        await world.until(world.replicas_asked, 6)


async def test_slow_requests_on_a_warm_replica_scale_it_to_what_they_fill(world: World) -> None:
    policy = Policy(scale_target=2, target_utilization=1, max_replicas=6, scale_to_zero_after=10)
    first = await serving(world, policy)
    await world.pass_time(20.0, step=1.0)
    first_decisions = await world.decisions()
    world.replicas.work(first, 8.0)
    await world.pass_time(5.0)
    await world.until(world.replicas_asked, 4)
    assert len(first_decisions) <= 1


async def test_a_policy_that_asks_for_more_acts_at_once_also_at_zero(world: World) -> None:
    await at_zero(world)
    await world.set_policy(Policy(min_replicas=2).to_json())
    await world.until(world.replicas_asked, 2)


async def test_a_policy_that_cannot_be_followed_changes_nothing_and_is_told(world: World) -> None:
    await serving(world, Policy(min_replicas=1))
    await world.set_policy('{"minReplicas": -3}')
    await world.until(lambda: events(world), ["InvalidPolicy"])
    assert await world.replicas_asked() == 1


async def events(world: World) -> list[str]:
    return [str(event["reason"]) for event in (await world.cluster.list(EVENT, "default")).items]


async def test_an_initial_scale_of_zero_is_ready_without_a_replica(world: World) -> None:
    await world.create_revision(Policy(), annotations={"autoscaling.knative.dev/initial-scale": "0"}, replicas=0)
    await world.until(world.mode, "Proxy")
    await world.report_services(in_path=True)
    await world.until(lambda: world.condition("ScaleTargetInitialized"), ("True", ""))
    assert await world.condition("Active") == ("False", "NoTraffic")
    assert await world.replicas_asked() == 0


async def test_a_revision_that_never_starts_is_given_up_at_its_progress_deadline(world: World) -> None:
    await world.create_revision(Policy(), annotations={"serving.knative.dev/progress-deadline": "30s"})
    await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))
    await world.report_services(in_path=True)
    world.clock.step(41.0)  # and 10 s in which the Revision learns why
    await world.set_policy(Policy(max_replicas=3).to_json())  # any change: the deadline's own timer is real time
    await world.until(world.replicas_asked, 0)
    await world.until(lambda: world.condition("Active"), ("False", "TimedOut"))
    assert await world.condition("ScaleTargetInitialized") == ("Unknown", "")


async def test_an_unreachable_revision_ignores_its_minimum_once_it_was_ready(world: World) -> None:
    await serving(world, Policy(min_replicas=1, scale_to_zero_after=10))
    await world.pass_time(20.0)
    assert await world.replicas_asked() == 1
    patch = {"spec": {"reachability": "Unreachable"}}
    await world.cluster.patch(POD_AUTOSCALER, REVISION_NAME, patch, "default", manager="knative")
    await world.until(world.mode, "Proxy")
    await world.report_services(in_path=True)
    await world.until(world.replicas_asked, 0)
    status = (await world.pod_autoscaler())["status"]
    assert status["observedGeneration"] == 2


async def test_replicas_that_crash_do_not_lower_the_count(world: World) -> None:
    pod = await serving(world)
    await world.set_ready(pod, False)
    await world.until(world.mode, "Proxy")
    await world.pass_time(120.0)
    assert await world.replicas_asked() == 1
    await world.until(lambda: world.condition("Active"), ("Unknown", "Queued"))


async def test_decisions_are_written_with_their_reasons_and_not_more_than_one_write_a_second(world: World) -> None:
    await at_zero(world)
    world.activator.holds(queued=4)
    await world.until(world.replicas_asked, 2)
    world.clock.step(1.0)
    await world.set_policy(Policy(scale_to_zero_after=11.0).to_json())
    await world.until(lambda: steps(world), [(1, 0), (0, 2)])
    reasons = (await world.decisions())[1]["reasons"]
    assert reasons[-1]["rule"] == "Waiting"
    assert "4 requests wait" in reasons[-1]["message"]


async def steps(world: World) -> list[tuple[int, int]]:
    """Return the first two decisions: more requests are expected while the first replicas start."""
    return [(one["from"], one["to"]) for one in (await world.decisions())[:2]]


async def starts(world: World) -> int:
    return len(read_entries(await world.pod_autoscaler(), ANNOTATION_STARTS))


async def test_a_settled_revision_is_not_written_again_before_its_bill_is_due(cluster: EmbeddedCluster) -> None:
    settings = AutoscalerSettings(records=Records(usage_interval=3_600.0))
    async with running(World(cluster, SteppedClock(), settings)) as world:
        await serving(world, Policy(min_replicas=1))
        await world.pass_time(10.0)  # the start is noted when its server was heard, or was not for a while
        await world.until(lambda: world.condition("Active"), ("True", ""))
        await world.until(lambda: starts(world), 1)
        before = json.dumps(await world.pod_autoscaler())
        await world.pass_time(100.0)
        assert json.dumps(await world.pod_autoscaler()) == before


async def test_a_pod_autoscaler_of_another_class_is_left_alone(world: World) -> None:
    await world.create_revision(annotations={"autoscaling.knative.dev/class": "kpa.autoscaling.knative.dev"})
    await world.pass_time(5.0)
    assert not (await world.cluster.list(SERVERLESS_SERVICE, "default")).items
    assert "status" not in await world.pod_autoscaler()


@pytest.mark.fault("A1")
async def test_a_new_process_keeps_the_replicas_that_it_finds(cluster: EmbeddedCluster) -> None:
    clock = SteppedClock()
    policy = Policy(max_replicas=8, scale_to_zero_after=30)
    async with running(World(cluster, clock)) as former:
        await serving(former, policy)
    await cluster.scale(DEPLOYMENT, DEPLOYMENT_NAME, "default", 3, manager="test")
    world = World(cluster, clock)
    async with running(world):
        await world.until(lambda: world.condition("Active"), ("True", ""))
        await world.pass_time(25.0)
        assert await world.replicas_asked() == 3


@pytest.mark.fault("A9")
async def test_a_namesake_of_a_deleted_pod_autoscaler_starts_from_nothing(world: World) -> None:
    await at_zero(world)
    await world.cluster.delete(REVISION, REVISION_NAME, "default")
    for kind in (POD_AUTOSCALER, DEPLOYMENT, SERVERLESS_SERVICE):
        await world.until(partial(count, world, kind), 0)
    await world.create_revision(Policy(min_replicas=2), replicas=1)
    await world.until(world.replicas_asked, 2)
    await world.until(world.mode, "Proxy")
    await world.until(lambda: world.condition("ScaleTargetInitialized"), ("Unknown", ""))


async def count(world: World, kind: Kind) -> int:
    return len((await world.cluster.list(kind, "default")).items)


@pytest.mark.fault("A9")
async def test_a_deployment_of_another_revision_is_not_scaled(world: World) -> None:
    await world.create_revision(Policy(min_replicas=3))
    await world.until(world.replicas_asked, 3)
    meta = {"name": "other", "namespace": "default"}
    revision = await world.cluster.create(REVISION, {"metadata": meta, "spec": {}}, manager="test")
    owned = {**meta, "ownerReferences": [owner_reference(REVISION, revision)]}
    await world.cluster.create(DEPLOYMENT, {"metadata": owned, "spec": {"replicas": 1}}, manager="test")
    patch = {"spec": {"scaleTargetRef": {"name": "other"}}}
    await world.cluster.patch(POD_AUTOSCALER, REVISION_NAME, patch, "default", manager="test")
    await world.pass_time(5.0)
    assert (await world.get(DEPLOYMENT, "other"))["spec"]["replicas"] == 1


async def test_a_tick_that_fails_does_not_end_the_scaling(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await serving(world, Policy(max_replicas=4, scale_target=1.0, target_utilization=1.0))

    async def broken(_: Endpoint) -> Sample:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched:
        patched.setattr(world.replicas, "sample", broken)
        await world.pass_time(3.0)
    world.activator.holds(queued=3)

    await world.until(world.replicas_asked, 4)


class Hasty(SteppedClock):
    """A clock that advances by half a second at each reading."""

    def now(self) -> datetime:
        self.step(0.5)
        return super().now()


async def test_a_deadline_that_passes_during_a_pass_is_not_missed(cluster: EmbeddedCluster) -> None:
    async with running(World(cluster, Hasty(), AutoscalerSettings(zero=Zero(diagnosis=0.0)))) as world:
        await world.create_revision(Policy(), annotations={PROGRESS_DEADLINE: "2s"})

        await world.until(lambda: world.condition("Active"), ("False", "TimedOut"))
