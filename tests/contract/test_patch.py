"""Contract: merge patch, JSON patch, subresources, generation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, Conflict, Invalid, NotFound
from clusters.base.objects import DEPLOYMENT, SECRET, name_of, version_of
from tests.contract.widgets import WIDGET, widget


@pytest.fixture
async def made(cluster: Cluster, namespace: str) -> Any:
    """Create a Widget with some content."""
    obj = widget(namespace, spec={"a": 1, "m": {"x": 1, "y": 2}, "l": [1, 2]}, labels={"k": "v"})
    return await cluster.create(WIDGET, obj, manager="tests")


async def test_a_merge_patch_merges_maps_replaces_lists_and_removes_nulls(
    cluster: Cluster, namespace: str, made: Any
) -> None:
    patch = {"spec": {"m": {"x": None, "z": 3}, "l": [9]}}
    after = await cluster.patch(WIDGET, "w", patch, namespace, manager="tests")
    assert after["spec"] == {"a": 1, "m": {"y": 2, "z": 3}, "l": [9]}
    assert after["metadata"]["generation"] == 2


async def test_a_patch_that_changes_nothing_writes_nothing(cluster: Cluster, namespace: str, made: Any) -> None:
    assert await cluster.patch(WIDGET, "w", {"spec": {"a": 1, "q": None}}, namespace, manager="other") == made


async def test_a_change_of_metadata_alone_keeps_the_generation(cluster: Cluster, namespace: str, made: Any) -> None:
    after = await cluster.patch(WIDGET, "w", {"metadata": {"labels": {"k": "w"}}}, namespace, manager="tests")
    assert after["metadata"]["generation"] == 1
    assert version_of(after) != version_of(made)


async def test_a_stale_version_in_a_merge_patch_conflicts(cluster: Cluster, namespace: str, made: Any) -> None:
    await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="tests")
    stale = {"metadata": {"resourceVersion": version_of(made)}, "spec": {"a": 3}}
    with pytest.raises(Conflict, match="resourceVersion"):
        await cluster.patch(WIDGET, "w", stale, namespace, manager="tests")


async def test_of_many_writers_with_one_version_one_wins(cluster: Cluster, namespace: str, made: Any) -> None:
    version = version_of(made)
    patches: list[dict[str, Any]] = [
        {"metadata": {"resourceVersion": version}, "spec": {"a": n}} for n in range(100, 120)
    ]
    outcomes = await asyncio.gather(
        *(cluster.patch(WIDGET, "w", patch, namespace, manager="tests") for patch in patches), return_exceptions=True
    )
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
    assert await cluster.get(WIDGET, "w", namespace) == winner


@pytest.mark.parametrize("field", ["uid", "generation", "creationTimestamp", "deletionTimestamp", "managedFields"])
async def test_a_patch_cannot_forge_what_the_server_writes(
    cluster: Cluster, namespace: str, made: Any, field: str
) -> None:
    forged: Any = [] if field == "managedFields" else 9 if field == "generation" else "2000-01-01T00:00:00Z"
    try:
        after = await cluster.patch(WIDGET, "w", {"metadata": {field: forged}}, namespace, manager="tests")
    except ClusterError:
        after = await cluster.get(WIDGET, "w", namespace)
    assert after == made


@pytest.mark.parametrize("field", ["name", "namespace"])
async def test_a_patch_cannot_rename(cluster: Cluster, namespace: str, made: Any, field: str) -> None:
    with pytest.raises(ClusterError):
        await cluster.patch(WIDGET, "w", {"metadata": {field: "elsewhere"}}, namespace, manager="tests")
    assert await cluster.get(WIDGET, "w", namespace) == made


async def test_a_json_patch_changes_lists_by_index(cluster: Cluster, namespace: str, made: Any) -> None:
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/spec/l/0", "value": 1},
        {"op": "add", "path": "/spec/l/-", "value": 3},
        {"op": "replace", "path": "/spec/a", "value": 5},
        {"op": "remove", "path": "/spec/m/x"},
    ]
    after = await cluster.patch(WIDGET, "w", operations, namespace, manager="tests", type="json")
    assert after["spec"] == {"a": 5, "m": {"y": 2}, "l": [1, 2, 3]}


async def test_a_failed_test_of_a_json_patch_changes_nothing(cluster: Cluster, namespace: str, made: Any) -> None:
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": "/spec/a", "value": 5},
        {"op": "test", "path": "/spec/m/x", "value": "another"},
    ]
    with pytest.raises(Conflict, match="test failed"):
        await cluster.patch(WIDGET, "w", operations, namespace, manager="tests", type="json")
    assert await cluster.get(WIDGET, "w", namespace) == made


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": "/spec/absent"}],
        [{"op": "replace", "path": "/spec/absent/deep", "value": 1}],
        [{"op": "add", "path": "/spec/l/99", "value": 1}],
        [{"op": "unknown", "path": "/spec/a"}],
        [{"path": "/spec/a"}],
        [{"op": "add", "path": "no-slash", "value": 1}],
        [{"op": "add", "path": "/spec/a/b", "value": 1}],
        [{"op": "remove", "path": "/metadata"}],
    ],
)
async def test_a_malformed_json_patch_is_refused(
    cluster: Cluster, namespace: str, made: Any, operations: list[dict[str, Any]]
) -> None:
    with pytest.raises(Invalid):
        await cluster.patch(WIDGET, "w", operations, namespace, manager="tests", type="json")
    assert await cluster.get(WIDGET, "w", namespace) == made


async def test_a_test_of_what_is_not_there_fails(cluster: Cluster, namespace: str, made: Any) -> None:
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/spec/absent", "value": 1}]
    with pytest.raises(Conflict, match="test failed"):
        await cluster.patch(WIDGET, "w", operations, namespace, manager="tests", type="json")


async def test_a_dry_patch_stores_nothing(cluster: Cluster, namespace: str, made: Any) -> None:
    shown = await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="tests", dry_run=True)
    assert shown["spec"]["a"] == 2
    assert await cluster.get(WIDGET, "w", namespace) == made


async def test_status_goes_through_its_subresource(cluster: Cluster, namespace: str, made: Any) -> None:
    patch = {"status": {"observedGeneration": 1}, "spec": {"a": 99}, "metadata": {"labels": {"x": "y"}}}
    after = await cluster.patch(WIDGET, "w", patch, namespace, manager="controller", subresource="status")
    assert after["status"] == {"observedGeneration": 1}
    assert after["spec"] == made["spec"]
    assert after["metadata"]["labels"] == {"k": "v"}
    assert after["metadata"]["generation"] == 1
    plain = await cluster.patch(WIDGET, "w", {"status": {"observedGeneration": 7}}, namespace, manager="tests")
    assert plain == after


async def test_a_status_write_with_a_stale_version_conflicts(cluster: Cluster, namespace: str, made: Any) -> None:
    await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="tests")
    stale = {"metadata": {"resourceVersion": version_of(made)}, "status": {"x": 1}}
    with pytest.raises(Conflict):
        await cluster.patch(WIDGET, "w", stale, namespace, manager="controller", subresource="status")


async def test_scale_sets_the_replicas_and_nothing_else(cluster: Cluster, namespace: str, made: Any) -> None:
    await cluster.patch(WIDGET, "w", {"spec": {"replicas": 1}}, namespace, manager="tests")
    scale = await cluster.scale(WIDGET, "w", namespace, 3, manager="scaler")
    assert (scale["kind"], scale["spec"], name_of(scale)) == ("Scale", {"replicas": 3}, "w")
    after = await cluster.get(WIDGET, "w", namespace)
    assert after["spec"] == made["spec"] | {"replicas": 3}
    assert after["metadata"]["generation"] == 3
    entry = next(entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "scaler")
    assert (entry["subresource"], entry["fieldsV1"]) == ("scale", {"f:spec": {"f:replicas": {}}})


async def test_scaling_what_nobody_owned_makes_nobody_its_owner(cluster: Cluster, namespace: str, made: Any) -> None:
    await cluster.scale(WIDGET, "w", namespace, 3, manager="scaler")
    after = await cluster.apply(WIDGET, widget(namespace, spec={"replicas": 4}), manager="one")
    assert after["spec"]["replicas"] == 4


async def test_an_apply_that_disagrees_with_the_scaler_conflicts(cluster: Cluster, namespace: str) -> None:
    await cluster.apply(WIDGET, widget(namespace, spec={"replicas": 1}), manager="one")
    await cluster.scale(WIDGET, "w", namespace, 3, manager="scaler")
    with pytest.raises(Conflict) as conflict:
        await cluster.apply(WIDGET, widget(namespace, spec={"replicas": 1}), manager="one")
    assert conflict.value.fields == ("spec.replicas",)
    after = await cluster.apply(WIDGET, widget(namespace, spec={"other": 1}), manager="one")
    assert after["spec"] == {"replicas": 3, "other": 1}


async def test_negative_replicas_are_refused(cluster: Cluster, namespace: str, made: Any) -> None:
    with pytest.raises(Invalid, match=r"spec\.replicas"):
        await cluster.scale(WIDGET, "w", namespace, -1, manager="scaler")


@pytest.mark.fault("A9")
async def test_a_scale_that_names_a_uid_is_of_that_object_and_no_namesake(cluster: Cluster, namespace: str) -> None:
    labels = {"app": "w"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none.invalid/none"}]}}
    # Paused, so that nothing runs; custom resources' scale is not held to a uid by Kubernetes 1.35.
    spec = {"replicas": 0, "paused": True, "selector": {"matchLabels": labels}, "template": pod}
    made = await cluster.create(
        DEPLOYMENT, {"metadata": {"name": "w", "namespace": namespace}, "spec": spec}, manager="tests"
    )
    with pytest.raises(Conflict):
        await cluster.scale(DEPLOYMENT, "w", namespace, 3, manager="scaler", uid="11111111-2222-3333-4444-555555555555")
    assert (await cluster.get(DEPLOYMENT, "w", namespace))["spec"]["replicas"] == 0
    scale = await cluster.scale(DEPLOYMENT, "w", namespace, 3, manager="scaler", uid=made["metadata"]["uid"])
    assert scale["spec"] == {"replicas": 3}


async def test_scale_of_the_absent_is_not_found(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(NotFound):
        await cluster.scale(WIDGET, "absent", namespace, 1, manager="scaler")


async def test_kinds_without_a_subresource_say_so(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(NotFound):
        await cluster.patch(SECRET, "s", {"status": {}}, namespace, manager="tests", subresource="status")
