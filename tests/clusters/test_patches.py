"""Merge patch and JSON patch."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.errors import Invalid
from clusters.patches import LARGEST_COPIES, LARGEST_JSON_PATCH, json_patch, merge_patch

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


def test_a_patch_without_copies_is_applied_at_once_and_one_with_copies_comes_to_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    class Counted(jsonpatch.JsonPatch):
        def __init__(self, operations: Any) -> None:
            made.append(len(operations))
            super().__init__(operations)

    monkeypatch.setattr(jsonpatch, "JsonPatch", Counted)
    operations = [{"op": "add", "path": f"/a/{number}", "value": number} for number in range(1000)]
    operations += [{"op": "remove", "path": "/a/7"}, {"op": "move", "from": "/a/8", "path": "/b"}]

    at_once = json_patch({"a": {}}, operations, "thing")
    assert made == [1002]
    copy_first = {"op": "copy", "from": "/a", "path": "/c"}
    assert json_patch({"a": {}}, [copy_first, *operations], "thing") == at_once | {"c": {}}


@pytest.mark.bad_input("manage-patches")
def test_copies_that_double_what_is_there_are_refused_before_they_fill_the_memory() -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(60)]
    with pytest.raises(Invalid, match=f"more than {LARGEST_COPIES} bytes"):
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
