"""Requests to the embedded cluster: objects are copied and converted to JSON, and invalid fields are reported."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Any

import pytest

from clusters.base.errors import Invalid
from clusters.base.objects import MODEL, NAMESPACE, Object
from clusters.embedded.cluster import EmbeddedCluster


def obj(name: str = "a", *, spec: Any = None, **metadata: Any) -> Object:
    """Return an object for a request."""
    made: Object = {"metadata": {"name": name, "namespace": "ns", **metadata}}
    return made if spec is None else made | {"spec": spec}


async def test_later_changes_of_the_callers_value_do_not_reach_the_store(cluster: EmbeddedCluster) -> None:
    mine = obj(spec={"list": [1], "map": {}})
    creating = asyncio.create_task(cluster.create(MODEL, mine, manager="t"))
    await asyncio.sleep(0)
    mine["spec"]["list"].append(2)
    mine["spec"]["map"]["x"] = 1
    await creating
    assert (await cluster.get(MODEL, "a", "ns"))["spec"] == {"list": [1], "map": {}}


async def test_an_answered_object_is_never_changed_by_later_writes(cluster: EmbeddedCluster) -> None:
    first = await cluster.apply(MODEL, obj(spec={"m": {"a": 1}, "l": [1]}, finalizers=["a.b/c"]), manager="t")
    frozen = repr(first)
    await cluster.apply(MODEL, obj(spec={"m": {"b": 1}}), manager="t")
    operations = [{"op": "add", "path": "/spec/m/c", "value": 1}]
    await cluster.patch(MODEL, "a", operations, "ns", manager="t", type="json")
    await cluster.patch(MODEL, "a", {"status": {"x": 1}}, "ns", manager="t", subresource="status")
    await cluster.delete(MODEL, "a", "ns")
    assert repr(first) == frozen


class Colour(enum.StrEnum):
    """A subclass of str."""

    RED = "red"


async def test_python_values_become_json_so_that_a_second_apply_is_the_same(cluster: EmbeddedCluster) -> None:
    wanted = obj(spec={"tuple": (1, 2), "colour": Colour.RED, "float": 2.0})
    first = await cluster.apply(MODEL, wanted, manager="t")
    assert first["spec"] == {"tuple": [1, 2], "colour": "red", "float": 2.0}
    assert await cluster.apply(MODEL, wanted, manager="t") is first


def nested(depth: int) -> Any:
    """Return three nested maps."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "make", [lambda: {"x": object()}, lambda: {"x": "\ud800"}, lambda: nested(100_000)], ids=["object", "text", "deep"]
)
async def test_what_is_no_json_is_refused(cluster: EmbeddedCluster, make: Callable[[], Any]) -> None:
    spec = make()
    with pytest.raises(Invalid):
        await cluster.create(MODEL, obj(spec=spec), manager="t")
    with pytest.raises(Invalid):
        await cluster.apply(MODEL, obj(spec=spec), manager="t")
    await cluster.create(MODEL, obj(), manager="t")
    with pytest.raises(Invalid):
        await cluster.patch(MODEL, "a", {"spec": spec}, "ns", manager="t")


@pytest.mark.bad_input("object-metadata")
@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"metadata": None}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"apiVersion": "v9", "metadata": {"name": "a", "namespace": "ns"}}, "apiVersion"),
        ({"kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}, "kind"),
        ({"metadata": {"name": 5, "namespace": "ns"}}, "metadata.name"),
        ({"metadata": {"name": "a"}}, "metadata.namespace"),
        ({"metadata": {"name": "a", "namespace": "Not A Name"}}, "metadata.namespace"),
        ({"metadata": {"name": "a", "namespace": "ns", "labels": {"a": 1}}}, "metadata.labels[a]"),
        ({"metadata": {"name": "a", "namespace": "ns", "labels": ["a"]}}, "metadata.labels"),
        ({"metadata": {"name": "a", "namespace": "ns", "annotations": {"a": True}}}, "metadata.annotations[a]"),
        ({"metadata": {"name": "a", "namespace": "ns", "annotations": {"a b": ""}}}, "metadata.annotations"),
        ({"metadata": {"name": "a", "namespace": "ns", "finalizers": "x"}}, "metadata.finalizers"),
        ({"metadata": {"name": "a", "namespace": "ns", "finalizers": ["a b"]}}, "metadata.finalizers[0]"),
        ({"metadata": {"name": "a", "namespace": "ns", "ownerReferences": ["x"]}}, "metadata.ownerReferences"),
        (
            {"metadata": {"name": "a", "namespace": "ns", "ownerReferences": [{"kind": "K", "name": "n", "uid": "u"}]}},
            "metadata.ownerReferences[0].apiVersion",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["create", "apply"])
async def test_malformed_objects_are_refused_with_the_field(
    cluster: EmbeddedCluster, verb: str, wrong: Any, path: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await getattr(cluster, verb)(MODEL, wrong, manager="t")
    assert path in [cause.path for cause in refused.value.causes]
    assert (await cluster.list(MODEL)).items == []


async def test_two_controllers_of_one_object_are_refused(cluster: EmbeddedCluster) -> None:
    references = [
        {"apiVersion": "v1", "kind": "K", "name": name, "uid": name, "controller": True} for name in ("x", "y")
    ]
    with pytest.raises(Invalid, match="controller"):
        await cluster.create(MODEL, obj(ownerReferences=references), manager="t")


@pytest.mark.parametrize("manager", ["", "x" * 129, "new\nline"])
async def test_a_bad_manager_is_refused(cluster: EmbeddedCluster, manager: str) -> None:
    with pytest.raises(Invalid, match="fieldManager"):
        await cluster.create(MODEL, obj(), manager=manager)


async def test_a_version_on_an_object_to_be_created_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(Invalid, match="resourceVersion"):
        await cluster.create(MODEL, obj(resourceVersion="5"), manager="t")


async def test_the_wrong_kind_of_patch_is_refused(cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, obj(), manager="t")
    with pytest.raises(Invalid, match="must be a list"):
        await cluster.patch(MODEL, "a", {"spec": 1}, "ns", manager="t", type="json")
    with pytest.raises(Invalid, match="must be an object"):
        await cluster.patch(MODEL, "a", [{"op": "test"}], "ns", manager="t")


async def test_a_namespaced_kind_needs_its_namespace(cluster: EmbeddedCluster) -> None:
    with pytest.raises(Invalid, match="namespace"):
        await cluster.get(MODEL, "a")


async def test_a_namespace_has_a_dns_label_for_a_name_and_no_namespace(cluster: EmbeddedCluster) -> None:
    made = await cluster.create(NAMESPACE, {"metadata": {"name": "team", "namespace": "x"}}, manager="t")
    assert "namespace" not in made["metadata"]
    assert await cluster.get(NAMESPACE, "team", "ignored") == made
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await cluster.create(NAMESPACE, {"metadata": {"name": "a.b"}}, manager="t")
