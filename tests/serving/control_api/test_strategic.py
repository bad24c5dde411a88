"""Strategic merge patches of metadata and data, as kubectl computes them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusters.base.errors import Invalid
from serving.control_api.status import MalformedRequest
from serving.control_api.strategic import strategic_merge_patch


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
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": None}}, {"metadata": {}}),
        ({"metadata": {"finalizers": ["a", "b", "c"]}}, {"metadata": {"$setElementOrder/finalizers": ["c", "a"]}},
         {"metadata": {"finalizers": ["b", "c", "a"]}}),
        ({"metadata": {"finalizers": ["a", "b"]}},
         {"metadata": {"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}},
         {"metadata": {"finalizers": ["c", "a", "b"]}}),
        ({"metadata": {"ownerReferences": [owner("1"), owner("2")]}},
         {"metadata": {"ownerReferences": [{"$patch": "replace"}, owner("3", **{"$retainKeys": ["uid"]})]}},
         {"metadata": {"ownerReferences": [owner("3")]}}),
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


@pytest.mark.bad_input("manage-patches")
@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ({"metadata": {"finalizers": 3}}, "metadata.finalizers"),
        ({"metadata": {"finalizers": [3]}}, "metadata.finalizers[0]"),
        ({"metadata": {"finalizers": [{"$patch": "replace"}]}}, "metadata.finalizers[0]"),
        ({"metadata": {"ownerReferences": [owner("1"), {"name": "no uid"}]}}, "metadata.ownerReferences[1].uid"),
        ({"metadata": {"ownerReferences": [{"uid": {}}]}}, "metadata.ownerReferences[0].uid"),
        ({"metadata": {"ownerReferences": ["text"]}}, "metadata.ownerReferences[0]"),
        ({"metadata": {"ownerReferences": [{"$patch": "delete"}]}}, "metadata.ownerReferences[0].uid"),
        ({"metadata": {"ownerReferences": [owner("1", **{"$patch": "merge"})]}}, "metadata.ownerReferences[0].$patch"),
        ({"metadata": {"ownerReferences": [owner("1", **{"$patch": None})]}}, "metadata.ownerReferences[0].$patch"),
        ({"metadata": {"$deleteFromPrimitiveList/ownerReferences": ["1"]}},
         "metadata.$deleteFromPrimitiveList/ownerReferences"),
        ({"metadata": {"$deleteFromPrimitiveList/labels": ["a"]}}, "metadata.$deleteFromPrimitiveList/labels"),
        ({"spec": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, "spec.$deleteFromPrimitiveList/finalizers"),
        ({"metadata": {"$setElementOrder/labels": []}}, "metadata.$setElementOrder/labels"),
        ({"metadata": {"$setElementOrder/finalizers": ["a"], "finalizers": None}}, "metadata.finalizers"),
        ({"metadata": {"$setElementOrder/finalizers": [3]}}, "metadata.$setElementOrder/finalizers[0]"),
        ({"metadata": {"$setElementOrder/ownerReferences": [{"name": "a"}]}},
         "metadata.$setElementOrder/ownerReferences[0].uid"),
        ({"data": {"$patch": "merge"}}, "data.$patch"),
        ({"data": {"$patch": ["replace"]}}, "data.$patch"),
        ({"$patch": None}, "$patch"),
        ({"data": {"$drop": 1}}, "data.$drop"),
    ],
)  # fmt: skip
def test_a_directive_that_kubernetes_does_not_know_or_take_is_refused_by_its_field(
    patch: dict[str, Any], place: str
) -> None:
    with pytest.raises(Invalid) as refused:
        strategic_merge_patch({"metadata": {"finalizers": ["a"], "name": "x"}, "data": {"a": "1"}}, patch, "it")
    assert [cause.path for cause in refused.value.causes] == [place]


@pytest.mark.bad_input("manage-patches")
@pytest.mark.parametrize(
    ("patch", "place"),
    [
        ({"metadata": {"$retainKeys": 3}}, "metadata.$retainKeys: "),
        ({"metadata": {"$retainKeys": None}}, "metadata.$retainKeys: "),
        ({"data": {"$retainKeys": ["a"], "b": "1"}}, "data.$retainKeys: 'b' is set by the patch"),
        ({"metadata": {"$retainKeys": ["name"], "finalizers": ["b"]}}, "metadata.$retainKeys: 'finalizers' is set"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}, "metadata.$deleteFromPrimitiveList/finalizers: "),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": None}}, "metadata.$deleteFromPrimitiveList/finalizers: "),
        ({"metadata": {"$deleteFromPrimitiveList": ["a"]}}, "metadata.$deleteFromPrimitiveList: "),
        ({"metadata": {"$setElementOrder": ["a"]}}, "metadata.$setElementOrder: "),
        ({"metadata": {"$setElementOrder/finalizers": {}}}, "metadata.$setElementOrder/finalizers: "),
        ({"metadata": {"$setElementOrder/finalizers": ["b"], "finalizers": ["b", "c"]}}, "does not have 'c'"),
        ({"metadata": {"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["b", "c"]}}, "does not have 'c'"),
        ({"metadata": {"$setElementOrder/ownerReferences": [owner("2")], "ownerReferences": [owner("1")]}},
         "does not have '1'"),
    ],
)  # fmt: skip
def test_a_malformed_list_of_a_directive_is_a_bad_request(patch: dict[str, Any], place: str) -> None:
    with pytest.raises(MalformedRequest, match=re.escape(place)):
        strategic_merge_patch({"metadata": {"finalizers": ["a"], "name": "x"}, "data": {"a": "1"}}, patch, "it")
