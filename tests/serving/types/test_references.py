"""Checks against other objects: unknown revisions, and hosts and names in use."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.objects import Object
from serving.types.references import collisions, make_validator, unknown_revisions
from tests.serving.models import VARIANTS, model_object, service_object

BLUE = [{"latest": True, "percent": 100, "tag": "blue"}]


@pytest.mark.bad_input("object-references")
def test_a_revision_that_nobody_has_is_named_with_those_that_exist() -> None:
    obj = model_object(traffic=[{"latest": True, "percent": 50}, {"revision": "magika-00009", "percent": 50}])
    [error] = unknown_revisions(obj, ["magika-00001"])
    assert error.path == "spec.traffic[1].revision"
    assert "magika-00009" in error.message
    assert "known: magika-00001" in error.message
    assert unknown_revisions(obj, ["magika-00009"]) == []
    assert unknown_revisions(model_object(), []) == []


@pytest.mark.bad_input("object-references")
def test_a_tag_whose_host_is_a_models_name_is_refused() -> None:
    [error] = collisions(model_object(traffic=BLUE), [model_object("blue-magika")])
    assert error.path == "spec.traffic[0].tag"


@pytest.mark.bad_input("object-references")
def test_a_model_whose_name_is_a_tags_host_is_refused() -> None:
    [error] = collisions(model_object("blue-magika"), [model_object(traffic=BLUE)])
    assert error.path == "metadata.name"


@pytest.mark.bad_input("object-references")
def test_two_tags_of_one_host_are_refused() -> None:
    mine = model_object("c", traffic=[{"latest": True, "percent": 100, "tag": "a-b"}])
    theirs = model_object("b-c", traffic=[{"latest": True, "percent": 100, "tag": "a"}])
    assert [error.path for error in collisions(mine, [theirs])] == ["spec.traffic[0].tag"]


@pytest.mark.bad_input("object-references")
def test_a_variants_configuration_may_not_be_another_models() -> None:
    assert [error.path for error in collisions(model_object(variants=VARIANTS), [model_object("magika-v100")])] == [
        "spec.variants[1].name"
    ]


@pytest.mark.bad_input("object-references")
def test_other_namespaces_and_the_model_itself_do_not_count() -> None:
    other = model_object("blue-magika")
    other["metadata"]["namespace"] = "elsewhere"
    mine = model_object(traffic=BLUE)
    assert collisions(mine, [other, mine]) == []


@pytest.mark.bad_input("object-references")
def test_the_door_refuses_the_later_one_and_lets_other_changes_of_both_pass() -> None:
    first, second = model_object("blue-magika"), model_object(traffic=BLUE)
    validate = make_validator(lambda: [first])
    assert validate(None, second) != ()
    assert validate(second, {**second, "status": {}}) == ()
    assert validate(None, model_object("other")) == []


@pytest.mark.bad_input("object-references")
def test_the_door_refuses_code_where_the_namespace_does_not_allow_it() -> None:
    validate = make_validator(list, None, lambda namespace: namespace == "lab")
    code = model_object(modelFormat="python")

    [error] = validate(None, code)

    assert error.path == "spec.modelFormat"
    assert "knodel namespace default --label knodel.dev/allow-code=true" in error.message
    assert validate(None, {**code, "metadata": {"name": "magika", "namespace": "lab"}}) == []
    assert validate(None, model_object(modelFormat="sklearn")) == []
    assert validate(code, {**code, "status": {}}) == ()
    assert validate(None, service_object()) == []  # its code runs elsewhere


@pytest.mark.bad_input("object-references")
def test_the_door_refuses_a_revision_that_nobody_has_when_traffic_changes_and_only_then() -> None:
    living = {"metadata": {"name": "magika-00001", "namespace": "default", "labels": {"knodel.dev/model": "magika"}}}
    stranger = {"metadata": {"name": "other-00001", "namespace": "default", "labels": {"knodel.dev/model": "other"}}}
    validate = make_validator(list, lambda: [living, stranger])

    def pinned(name: str, **more: Any) -> Object:
        return model_object(traffic=[{"revision": name, "percent": 100}], **more)

    assert validate(model_object(), pinned("magika-00001")) == []
    assert [error.path for error in validate(model_object(), pinned("other-00001"))] == ["spec.traffic[0].revision"]
    assert validate(None, pinned("magika-00002")) != []
    assert validate(pinned("magika-00002"), pinned("magika-00002", minReplicas=1)) == []
