"""The mark of a canary's replicas for the autoscaler: set and removed with the policy, and otherwise unchanged."""

from __future__ import annotations

from typing import Any

from autoscaler.gpu.shapes import ANNOTATION_PRIORITY, ANNOTATION_WEIGHT
from autoscaler.types import POLICY_ANNOTATION, RESTART_ANNOTATION
from autoscaler.usage.meter import CANARY_ANNOTATION
from clusters.base.objects import POD_AUTOSCALER, Object
from serving.reconciler.actions import Patch
from serving.reconciler.observe import World
from serving.reconciler.plan import make_plan
from serving.types.annotations import ANNOTATION_RESTART
from serving.types.settings.settings import Settings
from serving.types.validation import read_model
from tests.serving.models import stored_object
from tests.serving.reconciler.rollout.revisions import revision

STABLE, NEW = "magika-00001", "magika-00002"


def autoscaler(name: str, **annotations: str) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    return {"metadata": metadata, "spec": {}, "status": {}}


def patches(autoscalers: list[Object], restart: str = "", **spec: Any) -> dict[str, Any]:
    """The annotations that a pass writes, by PodAutoscaler, when `STABLE` last had all the traffic."""
    obj = stored_object(**spec)
    obj["metadata"]["annotations"] = {ANNOTATION_RESTART: restart}
    line = {"revision": STABLE, "cause": {"by": "user"}, "at": "2026-01-01T00:00:01Z"}
    obj["status"] = {"history": [{**line, "promotedAt": "2026-01-01T00:00:02Z", "outcome": "promoted"}]}
    world = World(obj, revisions=(revision(1), revision(2)), autoscalers=tuple(autoscalers))
    marks = make_plan(read_model(obj), world, Settings()).marks
    found = [one for one in marks if isinstance(one, Patch) and one.kind is POD_AUTOSCALER]
    return {one.key.name: one.patch["metadata"]["annotations"] for one in found}


def test_a_canary_gets_the_mark_in_the_write_that_brings_its_policy() -> None:
    found = patches([autoscaler(STABLE), autoscaler(NEW)], canaryTrafficPercent=10)
    assert {name: said[CANARY_ANNOTATION] for name, said in found.items()} == {STABLE: None, NEW: "true"}
    assert all(POLICY_ANNOTATION in said for said in found.values())


def test_what_is_marked_already_is_not_written_again() -> None:
    policy = patches([autoscaler(NEW)], canaryTrafficPercent=10)[NEW][POLICY_ANNOTATION]
    marked = autoscaler(NEW, **{POLICY_ANNOTATION: policy, CANARY_ANNOTATION: "true"})
    assert patches([marked], canaryTrafficPercent=10) == {}


def test_the_mark_goes_when_nothing_is_tried_any_more() -> None:
    policy = patches([autoscaler(NEW)])[NEW][POLICY_ANNOTATION]
    marked = autoscaler(NEW, **{POLICY_ANNOTATION: policy, CANARY_ANNOTATION: "true"})
    others = dict.fromkeys((CANARY_ANNOTATION, RESTART_ANNOTATION, ANNOTATION_PRIORITY, ANNOTATION_WEIGHT))
    assert patches([marked]) == {NEW: {POLICY_ANNOTATION: policy, **others}}


def test_a_restart_reaches_the_autoscalers_of_all_revisions() -> None:
    found = patches([autoscaler(STABLE), autoscaler(NEW)], restart="a,b")
    assert {name: annotations[RESTART_ANNOTATION] for name, annotations in found.items()} == {STABLE: "a,b", NEW: "a,b"}
