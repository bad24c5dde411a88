"""Contract: server-side apply."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import Conflict, Invalid, NotFound
from clusters.base.objects import name_of, version_of
from tests.contract.widgets import WIDGET, fields_of, widget


async def test_apply_creates_what_is_absent(cluster: Cluster, namespace: str) -> None:
    made = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    assert made["spec"] == {"a": 1}
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["managedFields"][0]["operation"] == "Apply"


async def test_apply_needs_a_name(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await cluster.apply(WIDGET, widget(namespace, ""), manager="one")


async def test_the_same_apply_again_writes_nothing(cluster: Cluster, namespace: str) -> None:
    obj = widget(namespace, spec={"a": {"b": [1, 2]}, "c": {}}, labels={"x": "y"})
    first = await cluster.apply(WIDGET, obj, manager="one")
    assert await cluster.apply(WIDGET, obj, manager="one") == first


async def test_managers_with_different_fields_do_not_disturb_each_other(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"m": {"a": 1}}), manager="one")
    both = await cluster.apply(WIDGET, widget(namespace, spec={"m": {"b": 2}}), manager="two")
    assert both["spec"] == {"m": {"a": 1, "b": 2}}
    assert both["metadata"]["generation"] == 2


async def test_another_value_for_anothers_field_conflicts(cluster: Cluster, namespace: str) -> None:
    before = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1, "list": [1]}), manager="one")
    with pytest.raises(Conflict) as conflict:
        await cluster.apply(WIDGET, widget(namespace, spec={"a": 2, "list": [1, 2], "own": 3}), manager="two")
    assert conflict.value.fields == ("spec.a", "spec.list")
    assert "'one'" in str(conflict.value)
    assert await cluster.get(WIDGET, "w", namespace) == before


async def test_force_takes_the_field_over(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1, "b": 1}), manager="one")
    taken = await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}), manager="two", force=True)
    assert taken["spec"] == {"a": 2, "b": 1}
    assert fields_of(taken, "one") == {"f:spec": {"f:b": {}}}
    assert fields_of(taken, "two") == {"f:spec": {"f:a": {}}}


async def test_the_same_value_is_owned_together(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="two")
    left = await cluster.apply(WIDGET, widget(namespace, spec={"b": 1}), manager="one")
    assert left["spec"] == {"a": 1, "b": 1}
    gone = await cluster.apply(WIDGET, widget(namespace, spec={"c": 1}), manager="two")
    assert gone["spec"] == {"b": 1, "c": 1}


async def test_what_a_manager_no_longer_says_goes(cluster: Cluster, namespace: str) -> None:
    first = widget(namespace, spec={"a": 1, "m": {"x": 1}}, labels={"l": "1"}, annotations={"n": "1"})
    await cluster.apply(WIDGET, first, manager="one")
    left = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    assert left["spec"] == {"a": 1}
    assert not left["metadata"].get("labels")
    assert not left["metadata"].get("annotations")


async def test_a_list_is_one_value(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"l": [{"name": "a", "v": 1}]}), manager="one")
    replaced = await cluster.apply(WIDGET, widget(namespace, spec={"l": [{"name": "b"}]}), manager="one")
    assert replaced["spec"]["l"] == [{"name": "b"}]


async def test_a_patch_owns_what_it_changes(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    patched = await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="person")
    assert fields_of(patched, "one") is None
    with pytest.raises(Conflict) as conflict:
        await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    assert conflict.value.fields == ("spec.a",)
    agreed = await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}), manager="one")
    assert version_of(agreed) != version_of(patched)  # shared ownership is a change of managedFields
    assert agreed["metadata"]["generation"] == patched["metadata"]["generation"]


async def test_create_and_apply_of_one_manager_are_two_owners(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    with pytest.raises(Conflict):
        await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}), manager="one")


async def test_status_in_a_plain_apply_is_ignored(cluster: Cluster, namespace: str) -> None:
    made = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}) | {"status": {"x": 1}}, manager="one")
    assert "status" not in made
    again = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}) | {"status": {"x": 2}}, manager="one")
    assert again == made


async def test_status_is_applied_through_its_subresource_alone(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    status = widget(namespace, spec={"a": 99}) | {"status": {"ready": True}}
    after = await cluster.apply(WIDGET, status, manager="controller", subresource="status")
    assert after["status"] == {"ready": True}
    assert after["spec"] == {"a": 1}
    assert after["metadata"]["generation"] == 1
    entry = next(entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "controller")
    assert entry["subresource"] == "status"


async def test_a_plain_apply_leaves_the_status(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    await cluster.apply(WIDGET, widget(namespace) | {"status": {"s": 1}}, manager="one", subresource="status")
    after = await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}), manager="one")
    assert after["status"] == {"s": 1}


async def test_the_subresource_of_an_absent_object_is_not_found(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(NotFound):
        await cluster.apply(WIDGET, widget(namespace) | {"status": {}}, manager="one", subresource="status")


async def test_version_and_uid_are_preconditions(cluster: Cluster, namespace: str) -> None:
    first = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    stale = version_of(first)
    second = await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}, resourceVersion=stale), manager="one")
    with pytest.raises(Conflict) as conflict:
        await cluster.apply(WIDGET, widget(namespace, spec={"a": 3}, resourceVersion=stale), manager="one")
    assert conflict.value.fields == ()
    with pytest.raises(Conflict):
        await cluster.apply(WIDGET, widget(namespace, spec={"a": 3}, uid="another"), manager="one")
    assert await cluster.get(WIDGET, "w", namespace) == second


async def test_a_uid_keeps_an_absent_object_from_being_created(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Conflict):
        await cluster.apply(WIDGET, widget(namespace, uid="some"), manager="one")


async def test_a_version_alone_does_not(cluster: Cluster, namespace: str) -> None:
    made = await cluster.apply(WIDGET, widget(namespace, resourceVersion="1"), manager="one")
    assert version_of(made) != "1"


async def test_a_dry_apply_shows_and_stores_nothing(cluster: Cluster, namespace: str) -> None:
    before = await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    shown = await cluster.apply(WIDGET, widget(namespace, spec={"a": 2}), manager="one", dry_run=True)
    assert shown["spec"] == {"a": 2}
    assert await cluster.get(WIDGET, "w", namespace) == before


async def test_a_number_and_a_truth_value_are_different(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"a": 1}), manager="one")
    after = await cluster.apply(WIDGET, widget(namespace, spec={"a": True}), manager="one")
    assert after["spec"]["a"] is True


async def test_finalizers_of_several_managers_stand_together(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, finalizers=["a.example/x"]), manager="one")
    both = await cluster.apply(WIDGET, widget(namespace, finalizers=["b.example/y"]), manager="two")
    assert sorted(both["metadata"]["finalizers"]) == ["a.example/x", "b.example/y"]
    one = await cluster.apply(WIDGET, widget(namespace), manager="one")
    assert one["metadata"]["finalizers"] == ["b.example/y"]


async def test_owner_references_of_several_managers_stand_together(cluster: Cluster, namespace: str) -> None:
    owners = [await cluster.create(WIDGET, widget(namespace, f"owner-{n}"), manager="tests") for n in range(2)]
    references = [
        {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "name": name_of(owner), "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]
    await cluster.apply(WIDGET, widget(namespace, ownerReferences=references[:1]), manager="one")
    both = await cluster.apply(WIDGET, widget(namespace, ownerReferences=references[1:]), manager="two")
    assert both["metadata"]["ownerReferences"] == references


async def test_concurrent_applies_of_disjoint_fields_all_stay(cluster: Cluster, namespace: str) -> None:
    await asyncio.gather(
        *(cluster.apply(WIDGET, widget(namespace, spec={f"f{n}": n}), manager=f"m{n}") for n in range(20))
    )
    after = await cluster.get(WIDGET, "w", namespace)
    assert after["spec"] == {f"f{n}": n for n in range(20)}
    assert len(after["metadata"]["managedFields"]) == 20
