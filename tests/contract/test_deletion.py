"""Contract: finalizers, garbage collection."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import NAMESPACE, Object, is_deleting, name_of, owner_reference
from tests.contract.widgets import WIDGET, widget
from tests.support.wait import eventually

HOLD = "contract.knodel.dev/hold"


async def is_gone(cluster: Cluster, name: str, namespace: str) -> bool:
    """Return whether there is no such Widget."""
    try:
        await cluster.get(WIDGET, name, namespace)
    except NotFound:
        return True
    return False


async def drop_finalizers(cluster: Cluster, name: str, namespace: str) -> Object:
    """Remove all finalizers."""
    return await cluster.patch(WIDGET, name, {"metadata": {"finalizers": None}}, namespace, manager="tests")


async def test_a_finalizer_holds_the_object(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(WIDGET, widget(namespace, spec={"a": 1}, finalizers=[HOLD]), manager="tests")
    await cluster.delete(WIDGET, "w", namespace)
    held = await cluster.get(WIDGET, "w", namespace)
    assert is_deleting(held) and not is_deleting(made)
    await cluster.delete(WIDGET, "w", namespace)
    assert await cluster.get(WIDGET, "w", namespace) == held
    await drop_finalizers(cluster, "w", namespace)
    assert await is_gone(cluster, "w", namespace)


async def test_a_held_object_still_changes_but_takes_no_new_finalizer(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, spec={"a": 1}, finalizers=[HOLD]), manager="tests")
    await cluster.delete(WIDGET, "w", namespace)
    changed = await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="tests")
    assert changed["spec"] == {"a": 2}
    with pytest.raises(Invalid, match="finalizers"):
        more = {"metadata": {"finalizers": [HOLD, "contract.knodel.dev/late"]}}
        await cluster.patch(WIDGET, "w", more, namespace, manager="tests")


async def test_one_of_two_finalizers_is_not_enough(cluster: Cluster, namespace: str) -> None:
    other = "contract.knodel.dev/other"
    await cluster.create(WIDGET, widget(namespace, finalizers=[HOLD, other]), manager="tests")
    await cluster.delete(WIDGET, "w", namespace)
    await cluster.patch(WIDGET, "w", {"metadata": {"finalizers": [other]}}, namespace, manager="tests")
    assert not await is_gone(cluster, "w", namespace)
    await drop_finalizers(cluster, "w", namespace)
    assert await is_gone(cluster, "w", namespace)


async def test_a_name_is_free_again_after_deletion(cluster: Cluster, namespace: str) -> None:
    first = await cluster.create(WIDGET, widget(namespace), manager="tests")
    await cluster.delete(WIDGET, "w", namespace)
    second = await cluster.create(WIDGET, widget(namespace), manager="tests")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


def child_of(owner: Object, namespace: str, name: str, *others: Object) -> Object:
    """Return a Widget with the controller `owner` and the owners `others`."""
    references: list[Any] = [owner_reference(WIDGET, owner)]
    references += [owner_reference(WIDGET, other) | {"controller": False} for other in others]
    return widget(namespace, name, ownerReferences=references)


async def test_dependents_go_after_their_owner(cluster: Cluster, namespace: str) -> None:
    owner = await cluster.create(WIDGET, widget(namespace, "owner"), manager="tests")
    child = await cluster.create(WIDGET, child_of(owner, namespace, "child"), manager="tests")
    await cluster.create(WIDGET, child_of(child, namespace, "grandchild"), manager="tests")
    await cluster.create(WIDGET, widget(namespace, "stranger"), manager="tests")
    await cluster.delete(WIDGET, "owner", namespace)

    async def only_the_stranger_is_left() -> bool:
        left = (await cluster.list(WIDGET, namespace)).items
        return [name_of(obj) for obj in left] == ["stranger"]

    await eventually(only_the_stranger_is_left, timeout=60)


async def test_a_dependent_stays_while_one_owner_is_left(cluster: Cluster, namespace: str) -> None:
    owners = [await cluster.create(WIDGET, widget(namespace, f"owner-{n}"), manager="tests") for n in range(2)]
    await cluster.create(WIDGET, child_of(owners[0], namespace, "child", owners[1]), manager="tests")
    await cluster.create(WIDGET, child_of(owners[0], namespace, "marker"), manager="tests")
    await cluster.delete(WIDGET, "owner-0", namespace)
    await eventually(lambda: is_gone(cluster, "marker", namespace), timeout=60)
    assert not await is_gone(cluster, "child", namespace)
    await cluster.delete(WIDGET, "owner-1", namespace)
    await eventually(lambda: is_gone(cluster, "child", namespace), timeout=60)


async def test_a_child_that_comes_too_late_goes_too(cluster: Cluster, namespace: str) -> None:
    owner = await cluster.create(WIDGET, widget(namespace, "owner"), manager="tests")
    await cluster.delete(WIDGET, "owner", namespace)
    await cluster.create(WIDGET, child_of(owner, namespace, "late"), manager="tests")
    await eventually(lambda: is_gone(cluster, "late", namespace), timeout=60)


async def test_dependents_stay_while_a_finalizer_holds_their_owner(cluster: Cluster, namespace: str) -> None:
    owner = await cluster.create(WIDGET, widget(namespace, "owner", finalizers=[HOLD]), manager="tests")
    await cluster.create(WIDGET, child_of(owner, namespace, "child"), manager="tests")
    await cluster.delete(WIDGET, "owner", namespace)
    assert not await is_gone(cluster, "child", namespace)
    await drop_finalizers(cluster, "owner", namespace)
    await eventually(lambda: is_gone(cluster, "child", namespace), timeout=60)


async def test_a_held_dependent_waits_for_its_own_finalizer(cluster: Cluster, namespace: str) -> None:
    owner = await cluster.create(WIDGET, widget(namespace, "owner"), manager="tests")
    child = child_of(owner, namespace, "child")
    child["metadata"]["finalizers"] = [HOLD]
    await cluster.create(WIDGET, child, manager="tests")
    await cluster.delete(WIDGET, "owner", namespace)

    async def child_is_deleting() -> bool:
        return is_deleting(await cluster.get(WIDGET, "child", namespace))

    await eventually(child_is_deleting, timeout=60)
    await drop_finalizers(cluster, "child", namespace)
    assert await is_gone(cluster, "child", namespace)


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_namespaces_that_a_cluster_needs_cannot_be_deleted(cluster: Cluster, name: str) -> None:
    with pytest.raises(Forbidden, match=f'namespaces "{name}" is forbidden: this namespace may not be deleted'):
        await cluster.delete(NAMESPACE, name)
