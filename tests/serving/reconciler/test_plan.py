"""The plan: its writes and their order."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from clusters.base.objects import (
    CONFIGURATION,
    MODEL,
    ROUTE,
    SERVICE,
    Kind,
    Object,
    owner_reference,
)
from serving.makers.knative import generation_of_version, make_configurations, make_service
from serving.makers.targets import first_traffic
from serving.reconciler.actions import Apply, Delete, Patch, needs_apply
from serving.reconciler.observe import World
from serving.reconciler.plan import Plan, make_plan
from serving.types.model import Model
from serving.types.settings.settings import Settings
from serving.types.validation import read_model
from tests.serving.models import VARIANTS, model, stored_object
from tests.serving.reconciler.rollout.revisions import revision

SETTINGS = Settings()


def owned(kind: Kind, name: str, owner_kind: Kind, owner: Object, **more: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{kind.kind}-{name}", "generation": 1}
    metadata["ownerReferences"] = [owner_reference(owner_kind, owner)]
    return {"metadata": metadata, "spec": {}, **more}


def service_of(wanted: Model) -> Object:
    made = make_service(wanted, SETTINGS, first_traffic(wanted))
    made["metadata"] |= {"uid": "uid-service", "generation": 1}
    made["status"] = {"observedGeneration": 1}
    return made


def world_of(wanted: Model, **parts: Any) -> World:
    return World(wanted.object, **parts)


def words(plan: Plan) -> list[str]:
    found = []
    for action in (*plan.objects, *plan.marks):
        match action:
            case Apply(kind, obj, _):
                found.append(f"apply {kind.kind} {obj['metadata']['name']}")
            case Patch(kind, key, _):
                found.append(f"patch {kind.kind} {key.name}")
            case Delete(kind, key, _):
                found.append(f"delete {kind.kind} {key.name}")
    return found


def line(revision_name: str) -> Object:
    return {"revision": revision_name, "cause": {"by": "user"}, "outcome": "promoted", "at": "t", "promotedAt": "t"}


def test_a_new_model_is_one_service() -> None:
    plan = make_plan(model(), world_of(model()), SETTINGS)
    assert words(plan) == ["apply Service magika"]
    assert isinstance(plan.objects[0], Apply)
    assert not plan.objects[0].force


def test_a_service_as_wanted_is_not_written_again() -> None:
    assert words(make_plan(model(), world_of(model(), service=service_of(model())), SETTINGS)) == []


def test_a_changed_model_forces_its_own_service() -> None:
    plan = make_plan(model(version="8"), world_of(model(version="8"), service=service_of(model())), SETTINGS)
    [action] = plan.objects
    assert isinstance(action, Apply)
    assert action.force


@pytest.mark.fault("K6")
def test_a_strangers_service_stops_everything_and_a_predecessors_is_waited_for() -> None:
    stranger: Object = {"metadata": {"name": "magika", "namespace": "default", "uid": "x"}, "spec": {}}
    plan = make_plan(model(), world_of(model(), service=stranger), SETTINGS)
    assert plan.objects == ()
    assert [(one.kind, one.name, one.leaving) for one in plan.foreign] == [(SERVICE, "magika", False)]
    former = service_of(read_model(stored_object(uid="u0")))
    plan = make_plan(model(), world_of(model(), service=former), SETTINGS)
    assert [one.leaving for one in plan.foreign] == [True]


@pytest.mark.fault("K6")
def test_the_children_of_a_strangers_service_are_strangers_and_a_predecessors_leave_with_it() -> None:
    wanted = model(variants=VARIANTS)
    stranger: Object = {"metadata": {"name": "magika", "namespace": "default", "uid": "x"}, "spec": {}}
    former = service_of(read_model(stored_object(uid="u0")))
    for service, leaving in ((stranger, False), (former, True)):
        route = owned(ROUTE, "magika", SERVICE, service)
        plan = make_plan(wanted, world_of(wanted, service=service, route=route), SETTINGS)
        assert [(one.kind, one.leaving) for one in plan.foreign] == [(ROUTE, leaving)]
        plan = make_plan(wanted, world_of(wanted, route=route), SETTINGS)
        assert [one.leaving for one in plan.foreign] == [True]


def test_from_a_service_the_children_are_taken_before_it_is_deleted() -> None:
    wanted, service = model(variants=VARIANTS), service_of(model())
    children = {
        "configurations": {"magika": owned(CONFIGURATION, "magika", SERVICE, service)},
        "route": owned(ROUTE, "magika", SERVICE, service),
    }
    plan = make_plan(wanted, world_of(wanted, service=service, **children), SETTINGS)
    assert words(plan) == [
        "apply Configuration magika-a100",
        "apply Configuration magika-v100",
        "patch Configuration magika",
        "patch Route magika",
        "delete Service magika",
    ]
    patch = plan.objects[2]
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"]["serving.knative.dev/service"] is None
    assert patch.patch["metadata"]["ownerReferences"] == [owner_reference(MODEL, wanted.object)]


def test_a_service_whose_children_are_not_seen_yet_is_not_deleted() -> None:
    wanted, service = model(variants=VARIANTS), service_of(model())
    plan = make_plan(wanted, world_of(wanted, service=service), SETTINGS)
    assert "delete Service magika" not in words(plan)


def test_back_to_a_service_it_comes_first_and_gets_the_children_when_it_is_there() -> None:
    wanted = model()
    children = {
        "configurations": {"magika": owned(CONFIGURATION, "magika", MODEL, wanted.object)},
        "route": owned(ROUTE, "magika", MODEL, wanted.object),
    }
    assert words(make_plan(wanted, world_of(wanted, **children), SETTINGS)) == ["apply Service magika"]
    plan = make_plan(wanted, world_of(wanted, service=service_of(wanted), **children), SETTINGS)
    assert words(plan) == ["patch Configuration magika", "patch Route magika"]
    patch = plan.objects[1]
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"]["serving.knative.dev/service"] == "magika"
    assert patch.patch["metadata"]["ownerReferences"] == [owner_reference(SERVICE, service_of(wanted))]


def pair(number: int) -> tuple[Object, Object]:
    a100, v100 = (
        revision(number, configuration=f"magika-{name}", generation="x", variants="a100,v100")
        for name in ("a100", "v100")
    )
    return a100, v100


def test_without_variants_but_with_their_traffic_everything_is_the_models_own() -> None:
    plan = make_plan(model(), world_of(model(), revisions=pair(1)), SETTINGS)
    assert words(plan) == ["apply Configuration magika", "apply Route magika"]
    route = plan.objects[1]
    assert isinstance(route, Apply)
    assert [target["revisionName"] for target in route.object["spec"]["traffic"]] == [
        "magika-a100-00001",
        "magika-v100-00001",
    ]


def test_a_canary_after_variants_names_the_configuration_that_a_service_would_have() -> None:
    wanted = model(canaryTrafficPercent=10)
    wanted.object["status"] = {"history": [line("magika-a100-00001")]}
    generation = generation_of_version(wanted, SETTINGS)
    revisions = (*pair(1), revision(2, generation=generation))
    plan = make_plan(wanted, world_of(wanted, revisions=revisions), SETTINGS)
    assert words(plan)[:2] == ["apply Configuration magika", "apply Route magika"]
    route = plan.objects[1]
    assert isinstance(route, Apply)
    first, *rest = route.object["spec"]["traffic"]
    assert first == {"configurationName": "magika", "latestRevision": True, "percent": 10}
    assert [target["percent"] for target in rest] == [45, 45]


def test_a_rollback_to_variants_takes_the_children_back_from_the_service() -> None:
    wanted = model(traffic=[{"revision": "magika-v100-00001", "percent": 100}])
    service = service_of(model())
    children = {
        "configurations": {"magika": owned(CONFIGURATION, "magika", SERVICE, service)},
        "route": owned(ROUTE, "magika", SERVICE, service),
    }
    plan = make_plan(wanted, world_of(wanted, service=service, revisions=pair(1), **children), SETTINGS)
    assert words(plan)[:3] == ["patch Configuration magika", "patch Route magika", "delete Service magika"]


def test_while_unknown_revisions_are_asked_for_the_shape_stays() -> None:
    wanted = model(traffic=[{"revision": "magika-00009", "percent": 100}])
    route = owned(ROUTE, "magika", MODEL, wanted.object)
    route["spec"]["traffic"] = [{"configurationName": "magika-a100", "latestRevision": True, "percent": 100}]
    [configuration, applied] = make_plan(wanted, world_of(wanted, route=route), SETTINGS).objects
    assert isinstance(configuration, Apply)
    assert configuration.kind is CONFIGURATION
    assert isinstance(applied, Apply)
    assert applied.object["spec"] == route["spec"]


def test_a_retired_configuration_goes_when_neither_traffic_nor_history_tells_of_it() -> None:
    wanted = model()
    retired = {"magika-v100": owned(CONFIGURATION, "magika-v100", MODEL, wanted.object)}
    world = world_of(wanted, service=service_of(wanted), configurations=retired)
    assert words(make_plan(wanted, world, SETTINGS)) == ["delete Configuration magika-v100"]
    told = copy.deepcopy(wanted.object)
    told["status"] = {"history": [{"revision": "magika-v100-00001", "cause": {"by": "user"}, "at": "t"}]}
    remembering = read_model(told)
    world = world_of(remembering, service=service_of(wanted), configurations=retired)
    assert words(make_plan(remembering, world, SETTINGS)) == []
    route = owned(ROUTE, "magika", SERVICE, service_of(wanted))
    route["status"] = {"traffic": [{"revisionName": "magika-v100-00001", "percent": 100}]}
    routed = revision(1, configuration="magika-v100")
    world = world_of(wanted, service=service_of(wanted), configurations=retired, route=route, revisions=(routed,))
    assert "delete Configuration magika-v100" not in words(make_plan(wanted, world, SETTINGS))


def test_a_pin_on_nothing_leaves_the_targets_that_there_are() -> None:
    wanted = model(traffic=[{"revision": "magika-00009", "percent": 100}])
    live = service_of(model())
    live["spec"]["traffic"] = [{"revisionName": "magika-00001", "latestRevision": False, "percent": 100}]
    [action] = make_plan(wanted, world_of(wanted, service=live), SETTINGS).objects
    assert isinstance(action, Apply)
    assert action.object["spec"]["traffic"] == live["spec"]["traffic"]
    [first] = make_plan(wanted, world_of(wanted), SETTINGS).objects
    assert isinstance(first, Apply)
    assert first.object["spec"]["traffic"] == [{"latestRevision": True, "percent": 100}]


def test_drift_is_seen_and_what_others_add_is_not_drift() -> None:
    wanted = make_configurations(model(variants=VARIANTS), SETTINGS)[0]
    live = copy.deepcopy(wanted)
    live["metadata"]["labels"]["theirs"] = "x"
    live["metadata"]["ownerReferences"].append({"uid": "other", "kind": "X", "name": "x", "apiVersion": "v1"})
    live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    assert not needs_apply(wanted, live)
    changes: list[Callable[[Object], object]] = [
        lambda obj: obj["spec"]["template"]["spec"].update(timeoutSeconds=1),
        lambda obj: obj["spec"]["template"]["spec"]["containers"][0].update(image="other"),
        lambda obj: obj["spec"]["template"]["spec"]["containers"].append({}),
        lambda obj: obj["metadata"]["labels"].pop("knodel.dev/model"),
        lambda obj: obj["metadata"].pop("ownerReferences"),
        lambda obj: obj["metadata"].pop("annotations"),
        lambda obj: obj.update(spec={}),
    ]
    for change in changes:
        drifted = copy.deepcopy(live)
        change(drifted)
        assert needs_apply(wanted, drifted)
