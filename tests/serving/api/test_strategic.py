"""Strategic merge patches of metadata and data, as kubectl computes them."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.errors import Invalid
from serving.api.strategic import strategic_merge_patch


def owner(uid: str, **fields: Any) -> dict[str, Any]:
    return {"uid": uid, **fields}


@pytest.mark.parametrize(
    ("present", "patch", "wanted"),
    [
        ({"data": {"a": "1", "b": "2"}}, {"data": {"a": None, "c": "3"}}, {"data": {"b": "2", "c": "3"}}),
        ({"data": {"a": "1"}}, {"data": {"b": "2", "$patch": "replace"}}, {"data": {"b": "2"}}),
        ({"data": {"a": "1"}}, {"data": {"$patch": "delete"}}, {"data": {}}),
        ({"data": {"a": "1", "b": "2"}}, {"data": {"$retainKeys": ["a"], "a": "3"}}, {"data": {"a": "3"}}),
        ({"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["b", "c"]}},
         {"metadata": {"finalizers": ["a", "b", "c"]}}),
        ({"metadata": {"finalizers": ["a", "b"]}},
         {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"]}},
         {"metadata": {"finalizers": ["b"]}}),
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": None}}, {"metadata": {"finalizers": []}}),
        ({"metadata": {"ownerReferences": [owner("1", name="a"), owner("2")]}},
         {"metadata": {"ownerReferences": [owner("1", kind="K"), {"$patch": "delete", "uid": "2"}, owner("3")]}},
         {"metadata": {"ownerReferences": [owner("1", name="a", kind="K"), owner("3")]}}),
        ({"spec": {"finalizers": ["a"]}}, {"spec": {"finalizers": ["b"]}}, {"spec": {"finalizers": ["b"]}}),
        ({}, {"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {"a": "b"}}}),
    ],
)  # fmt: skip
def test_maps_merge_and_lists_are_replaced_but_for_those_of_the_metadata(
    present: dict[str, Any], patch: dict[str, Any], wanted: dict[str, Any]
) -> None:
    before = repr(present)
    assert strategic_merge_patch(present, patch, "it") == wanted
    assert repr(present) == before


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"finalizers": 3}},
        {"metadata": {"ownerReferences": [{"name": "no uid"}]}},
        {"metadata": {"ownerReferences": ["text"]}},
        {"metadata": {"$retainKeys": 3}},
    ],
)
def test_a_malformed_patch_is_refused(patch: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="strategic merge patch is malformed"):
        strategic_merge_patch({"metadata": {"finalizers": ["a"], "name": "x"}}, patch, "it")
