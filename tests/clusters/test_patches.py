"""Merge patch and JSON patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.errors import Conflict, Invalid
from clusters.base.patches import LARGEST_COPIES, LARGEST_JSON_PATCH, json_patch, merge_patch
from clusters.base.sizes import format_size

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)

RFC_7386_EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7386_EXAMPLES)
def test_the_examples_of_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(MAPS, MAPS)
def test_a_merge_patch_is_idempotent_and_changes_no_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


@given(MAPS, st.lists(st.dictionaries(st.sampled_from(["op", "path", "from", "value"]), VALUES), max_size=3))
def test_any_list_of_maps_is_applied_or_invalid(target: Any, operations: Any) -> None:
    before = copy.deepcopy(target)
    try:
        assert isinstance(json_patch(target, operations, "thing"), dict)
    except Invalid as error:
        assert "\n" not in str(error)
    assert target == before


def test_too_many_operations_are_refused() -> None:
    operations = [{"op": "add", "path": "/a", "value": 1}] * (LARGEST_JSON_PATCH + 1)
    with pytest.raises(Invalid, match="at most"):
        json_patch({}, operations, "thing")


@pytest.mark.bad_input("manage-patches")
@pytest.mark.parametrize(
    ("operation", "described"),
    [
        ({"op": "remove", "path": "/spec/x"}, "remove '/spec/x': Cannot apply token 'x' to non-container type"),
        ({"op": "remove", "path": "/x"}, "remove '/x': can't remove a non-existent object 'x'"),
        ({"op": "copy", "path": "/x"}, "copy '/x': from must be the path"),
        ({"op": "replace", "path": "/secret/a/b", "value": 1}, "replace '/secret/a/b': member 'a' not found"),
        ({"op": "copy", "from": "/secret/a", "path": "/b"}, "copy '/b': member 'a' not found"),
        ({"op": "add", "path": "spec"}, "add 'spec': Location must start with /"),
        ({"op": "add", "path": 3, "value": 1}, "add '3': Invalid 'path'"),
        ({"op": "append", "path": "/spec", "value": "x"}, "'append' '/spec': op must be one of add, remove, replace,"),
        ({"op": ["add"], "path": "/spec"}, "['add'] '/spec': op must be one of"),
        ({"op": "a\n", "path": "\n"}, "'a\\n' '\\n': op must be one of"),
        ({"op": "remove", "path": "/\x1b"}, "remove '/\\x1b': can't remove a non-existent object '?'"),
        ({"path": "/spec"}, "None '/spec': op must be one of"),
        ("text", "an operation must be a JSON object"),
    ],
)
def test_a_refused_operation_is_named_by_its_index_and_path_without_the_objects_content(
    operation: Any, described: str
) -> None:
    target = {"secret": {"token": "s3cret"}, "spec": "text"}
    with pytest.raises(Invalid) as refused:
        json_patch(target, [{"op": "test", "path": "/spec", "value": "text"}, operation], "thing")
    [cause] = refused.value.causes
    assert cause.path == "patch[1]"
    assert described in cause.message
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("path", ["/secret/token", "/secret/nothing"])
def test_a_failed_test_names_its_operation_and_shows_no_value(path: str) -> None:
    operations = [{"op": "add", "path": "/a", "value": 1}, {"op": "test", "path": path, "value": "guess"}]
    with pytest.raises(Conflict) as failed:
        json_patch({"secret": {"token": "s3cret"}}, operations, "thing")
    assert str(failed.value) == f"thing: patch[1]: test '{path}': the test failed"


def test_what_an_operation_adds_is_not_changed_by_those_behind_it() -> None:
    operations = [{"op": "add", "path": "/a", "value": []}, {"op": "add", "path": "/a/-", "value": 1}]
    before = copy.deepcopy(operations)
    assert json_patch({}, operations, "thing") == json_patch({}, operations, "thing") == {"a": [1]}
    assert operations == before


@pytest.mark.bad_input("manage-patches")
def test_copies_that_double_what_is_there_are_refused_before_they_fill_the_memory() -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(Invalid, match=f"larger than {format_size(LARGEST_COPIES)}"):
        json_patch({"a": {"text": "x" * 1000}}, operations, "thing")


@pytest.mark.bad_input("manage-patches")
def test_copies_into_one_another_do_not_nest_without_end() -> None:
    operations = [{"op": "copy", "from": "", "path": "/a" * level} for level in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)]
    with pytest.raises(Invalid, match="too deep"):
        json_patch({}, operations, "thing")


def test_a_value_nested_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(800):
        deep = [deep]
    with pytest.raises(Invalid, match="too deep"):
        json_patch({}, [{"op": "add", "path": "/a", "value": deep}], "thing")
