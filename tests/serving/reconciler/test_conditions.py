"""A Model is Ready only when `status.traffic` has the split of its newest ready version."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.reconciler.status import Scale, make_status
from clusters.base.objects import CONFIGURATION, MODEL, REVISION, ROUTE, Kind, Object, is_true
from serving.makers.knative import generation_of_version, make_configurations
from serving.reconciler.conditions import configurations_state, failing_replica, routes_state
from serving.reconciler.observe import World
from serving.reconciler.plan import make_plan
from serving.types.lifecycle import GOOD, RECOVERING, State
from serving.types.model import Model
from serving.types.settings.settings import Settings
from tests.serving.models import VARIANTS, model, model_object
from tests.serving.reconciler.conftest import ModelStage
from tests.serving.reconciler.rollout.revisions import revision
from tests.support.loops import at_work

READY = [{"type": "Ready", "status": "True"}]
SETTINGS = Settings()


@contextlib.asynccontextmanager
async def readiness(stage: ModelStage) -> AsyncIterator[list[dict[str, int]]]:
    """`status.traffic` of every state in which the Model is Ready for the spec that it has after the block's start."""
    seen: list[dict[str, int]] = []
    before = await stage.model()

    async def follow() -> None:
        async for event in stage.cluster.watch(MODEL, before["metadata"]["resourceVersion"]):
            if event.type == "BOOKMARK":
                continue
            observed = (event.object.get("status") or {}).get("observedGeneration", 0)
            if is_true(event.object, "Ready") and observed > before["metadata"]["generation"]:
                seen.append({one["revision"]: one["percent"] for one in event.object["status"]["traffic"]})

    async with at_work(follow()):
        yield seen


def shaped(kind: Kind, name: str, owner: Model, spec: Object, **status: object) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1}
    metadata["ownerReferences"] = [{"kind": MODEL.kind, "uid": "u1", "name": owner.name, "controller": True}]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
        "status": {"observedGeneration": 1, "conditions": READY, **status},
    }


def world_of(wanted: Model, number: int, revisions: Sequence[Object], traffic: list[Object]) -> World:
    """All Configurations are Ready with Revision `number`, and the Route is Ready with `traffic`."""
    configurations = {}
    for made in make_configurations(wanted, SETTINGS):
        name = made["metadata"]["name"]
        latest = f"{name}-{number:05d}"
        status = {"latestCreatedRevisionName": latest, "latestReadyRevisionName": latest}
        configurations[name] = shaped(CONFIGURATION, name, wanted, made["spec"], **status)
    spec = [{name: value for name, value in one.items() if name != "seen"} for one in traffic]
    seen = [{"revisionName": one["seen"], "percent": one["percent"]} for one in traffic]
    route = shaped(ROUTE, wanted.name, wanted, {"traffic": spec}, traffic=seen)
    return World(wanted.object, route=route, configurations=configurations, revisions=tuple(revisions))


def is_good(wanted: Model, world: World) -> bool:
    plan = make_plan(wanted, world, SETTINGS)
    states = (configurations_state(wanted, world, plan.situation), routes_state(wanted, world, plan.split))
    return all(state == GOOD for state in states)


def test_a_route_that_has_not_followed_the_latest_ready_revision_is_not_good() -> None:
    wanted = model(version="2")
    revisions = [revision(1), revision(2, generation=generation_of_version(wanted, SETTINGS))]
    late = [{"latestRevision": True, "percent": 100, "seen": "magika-00001"}]
    assert not is_good(wanted, world_of(wanted, 2, revisions, late))
    moved = [{"latestRevision": True, "percent": 100, "seen": "magika-00002"}]
    assert is_good(wanted, world_of(wanted, 2, revisions, moved))


def test_a_route_that_misses_the_version_before_while_the_newest_is_ready_has_not_failed() -> None:
    wanted = model(version="2")
    newest = revision(2, generation=generation_of_version(wanted, SETTINGS))
    world = world_of(wanted, 2, [newest], [{"latestRevision": True, "percent": 100, "seen": "magika-00001"}])
    assert world.route is not None
    missing = {"type": "Ready", "status": "False", "reason": "RevisionMissing", "message": "magika-00001 failed"}
    world.route["status"]["conditions"] = [missing]
    split = make_plan(wanted, world, SETTINGS).split

    assert routes_state(wanted, world, split).status == "Unknown"
    newest["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "ExitCode1"}]
    assert routes_state(wanted, world, split).status == "False"


def test_while_a_version_starts_it_is_told_what_its_pods_wait_for() -> None:
    wanted = model()
    world = world_of(wanted, 1, [revision(1, None, generation=generation_of_version(wanted, SETTINGS))], [])
    world.configurations["magika"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    starting = Scale(desired=1, ready=0, threshold=1)

    def message(trouble: str) -> str:
        autoscaler: Object = {"metadata": {"name": "magika-00001", "generation": 1}}
        autoscaler["status"] = make_status(autoscaler, None, starting, datetime.now(UTC), trouble)
        seen = replace(world, autoscalers=(autoscaler,))
        return configurations_state(wanted, seen, make_plan(wanted, seen, SETTINGS).situation).message

    assert message("CreateContainerConfigError: volume: secret 'keys' does not exist") == (
        "magika-00001: CreateContainerConfigError: volume: secret 'keys' does not exist"
    )
    assert message("") == "magika-00001"


def test_configurations_that_are_seen_ready_before_their_revisions_are_not_good() -> None:
    wanted = model(variants=VARIANTS, version="2")

    def pair(number: int, generation: str, ready: bool | None) -> list[Object]:
        return [
            revision(number, ready, configuration=f"magika-{name}", generation=generation, variants="a100,v100")
            for name in ("a100", "v100")
        ]

    def split(number: int) -> list[Object]:
        shares = {"a100": 60, "v100": 40}
        names = {f"magika-{variant}-{number:05d}": share for variant, share in shares.items()}
        return [{"revisionName": name, "percent": share, "seen": name} for name, share in names.items()]

    generation = generation_of_version(wanted, SETTINGS)
    behind = [*pair(1, "x", True), *pair(2, generation, None)]
    assert not is_good(wanted, world_of(wanted, 2, behind, split(1)))
    caught_up = [*pair(1, "x", True), *pair(2, generation, True)]
    assert not is_good(wanted, world_of(wanted, 2, caught_up, split(1)))
    assert is_good(wanted, world_of(wanted, 2, caught_up, split(2)))


async def test_a_canary_is_ready_only_with_its_share(serving: ModelStage) -> None:
    expected = {"magika-00002": 10, "magika-00001": 90}
    async with readiness(serving) as seen:
        await serving.edit({"spec": {"storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
        await serving.appears(REVISION, "magika-00002")
        await serving.comes_up("magika-00002")
        await serving.traffic_is(expected)
        await serving.model_is("True")
        await serving.quiet()
    assert seen
    assert all(one == expected for one in seen)


async def test_a_canary_after_a_rollback_is_ready_only_with_its_share(serving: ModelStage) -> None:
    await serving.edit({"spec": {"storageUri": "file:///models/v2"}})
    await serving.appears(REVISION, "magika-00002")
    await serving.comes_up("magika-00002")
    await serving.traffic_is({"magika-00002": 100})
    await serving.edit({"spec": {"traffic": [{"revision": "magika-00001", "percent": 100}]}})
    await serving.traffic_is({"magika-00001": 100})
    await serving.model_is("True")
    expected = {"magika-00003": 10, "magika-00001": 90}
    async with readiness(serving) as seen:
        await serving.edit({"spec": {"storageUri": "file:///models/v3", "traffic": None, "canaryTrafficPercent": 10}})
        await serving.appears(REVISION, "magika-00003")
        await serving.comes_up("magika-00003")
        await serving.traffic_is(expected)
        await serving.model_is("True")
        await serving.quiet()
    assert seen
    assert all(one == expected for one in seen)


async def test_a_canary_of_variants_is_ready_only_with_its_share(stage: ModelStage) -> None:
    first = {"magika-a100-00001": 60, "magika-v100-00001": 40}
    await stage.deploy(model_object(variants=VARIANTS))
    await stage.comes_up(*first)
    await stage.traffic_is(first)
    await stage.model_is("True")
    expected = {"magika-a100-00001": 54, "magika-v100-00001": 36, "magika-a100-00002": 6, "magika-v100-00002": 4}
    async with readiness(stage) as seen:
        await stage.edit({"spec": {"storageUri": "file:///models/v2", "canaryTrafficPercent": 10}})
        await stage.comes_up("magika-a100-00002", "magika-v100-00002")
        await stage.traffic_is(expected)
        await stage.model_is("True")
        await stage.quiet()
    assert seen
    assert all(one == expected for one in seen)


def failed_for(reason: str, message: str) -> tuple[Model, World]:
    """A Model whose newest Revision says so; its Configuration repeats it in its own words."""
    wanted = model(version="2")
    newest = revision(2, generation=generation_of_version(wanted, SETTINGS))
    said = [{"type": "Ready", "status": "False", "reason": reason, "message": message}]
    newest["status"] = {**newest["status"], "conditions": said}
    world = world_of(
        wanted, 2, [revision(1), newest], [{"latestRevision": True, "percent": 100, "seen": "magika-00001"}]
    )
    repeated = f'Revision "magika-00002" failed with message: {message}.'
    told = [{"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": repeated}]
    world.configurations["magika"]["status"] |= {"conditions": told, "latestReadyRevisionName": "magika-00001"}
    return wanted, world


def state_of_newest(wanted: Model, world: World) -> State:
    return configurations_state(wanted, world, make_plan(wanted, world, SETTINGS).situation)


def test_a_version_that_no_node_has_room_for_yet_is_under_way_and_not_failed() -> None:
    wanted, world = failed_for("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")

    state = state_of_newest(wanted, world)

    assert (state.status, state.reason) == ("Unknown", "Unschedulable")
    assert "Insufficient cpu" in state.message
    assert make_plan(wanted, world, SETTINGS).situation.versions[-1].failure is None


def test_a_container_that_was_killed_without_a_word_has_the_likely_cause_named() -> None:
    wanted, world = failed_for("ExitCode137", "Container failed with: ")

    state = state_of_newest(wanted, world)

    assert (state.status, state.reason) == ("False", "ExitCode137")
    assert "resources.memory" in state.message


def test_a_version_that_was_ready_and_crashes_recovers_and_has_not_failed() -> None:
    wanted, world = failed_for("ExitCode134", "Container failed with: core dumped")
    world.configurations["magika"]["status"]["latestReadyRevisionName"] = "magika-00002"

    state = state_of_newest(wanted, world)

    assert state == State("False", RECOVERING, "magika-00002: ExitCode134: Container failed with: core dumped")


def test_a_failure_that_only_the_configuration_still_tells_of_is_over() -> None:
    wanted, world = failed_for("ExitCode134", "")
    world.revisions[-1]["status"]["conditions"] = READY

    assert state_of_newest(wanted, world).status == "Unknown"


def test_a_refusal_of_the_next_revision_stands_while_the_one_before_is_ready() -> None:
    wanted, world = failed_for("ExitCode134", "")
    world.revisions[-1]["status"]["conditions"] = READY
    denied = "Revision creation failed with message: admission webhook denied the request: no."
    said = [{"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": denied}]
    world.configurations["magika"]["status"]["conditions"] = said

    assert state_of_newest(wanted, world) == State("False", "RevisionFailed", denied)


def test_a_variant_that_recovers_hides_none_that_failed_for_good() -> None:
    wanted = model(variants=VARIANTS, version="1")
    generation = generation_of_version(wanted, SETTINGS)
    pair = [
        revision(1, False, configuration=f"magika-{name}", generation=generation, variants="a100,v100")
        for name in ("a100", "v100")
    ]
    world = world_of(wanted, 1, pair, [])
    for configuration in world.configurations.values():
        configuration["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "RevisionFailed"}]
    assert state_of_newest(wanted, world).reason == RECOVERING

    world.configurations["magika-v100"]["status"]["latestReadyRevisionName"] = ""
    assert state_of_newest(wanted, world).message == "magika-v100-00001: wrong digest"
    pair[1]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert state_of_newest(wanted, world).reason == RECOVERING


def test_of_replicas_that_do_not_start_that_of_the_newest_revision_is_told() -> None:
    def autoscaler(name: str, made: int) -> Object:
        said = {"type": "ReplicasStarted", "status": "False", "reason": "Unschedulable", "message": "no GPU"}
        metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{made:02d}Z"}
        return {"metadata": metadata, "status": {"conditions": [said]}}

    found = (autoscaler("magika-a100-00002", 2), autoscaler("magika-v100-00001", 1))
    assert failing_replica(World(model().object, autoscalers=found)) == ("Unschedulable", "magika-a100-00002: no GPU")


def test_a_route_that_is_not_yet_where_the_visibility_wants_it_is_not_good() -> None:
    wanted = model(version="2")
    revisions = [revision(1), revision(2, generation=generation_of_version(wanted, SETTINGS))]
    world = world_of(wanted, 2, revisions, [{"latestRevision": True, "percent": 100, "seen": "magika-00002"}])
    route = world.route or {}
    local = "http://magika.default.svc.cluster.local"

    route["status"] |= {"url": local, "address": {"url": local}}
    assert not is_good(wanted, world)
    route["status"] |= {"url": "http://magika.default.example.com"}
    assert is_good(wanted, world)
