"""The embedded cluster beyond the contract of all adapters: admission, Pods, scale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusters.base.errors import Conflict, FieldError, Invalid, NotFound
from clusters.base.objects import (
    DEPLOYMENT,
    MODEL,
    MODEL_EVENT,
    POD,
    SECRET,
    Key,
    Object,
    generation_of,
    is_deleting,
    name_of,
    version_of,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster, running


def obj(name: str = "a", *, spec: Any = None, **metadata: Any) -> Object:
    """Return an object for a request."""
    made: Object = {"metadata": {"name": name, "namespace": "ns", **metadata}}
    return made if spec is None else made | {"spec": spec}


class Sizes:
    """A validator that records its calls. It allows sizes up to 10, and no decrease."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def __call__(self, old: Object | None, new: Object) -> Sequence[FieldError]:
        """Validate a change."""
        sizes = [(one or {}).get("spec", {}).get("size", 0) for one in (old, new)]
        self.asked.append((None if old is None else sizes[0], sizes[1]))
        faults = [FieldError("spec.size", "at most 10 is allowed")] if sizes[1] > 10 else []
        return faults + ([FieldError("spec.size", "it cannot shrink")] if sizes[1] < sizes[0] else [])


@pytest.fixture
def sizes() -> Sizes:
    """The validator of `guarded`."""
    return Sizes()


@pytest.fixture
async def guarded(tmp_path: Path, sizes: Sizes) -> AsyncIterator[EmbeddedCluster]:
    """A cluster that validates Models."""
    async with embedded_cluster(tmp_path / "guarded.db", validators={MODEL: sizes}) as cluster:
        yield cluster


async def test_every_way_to_write_is_validated(guarded: EmbeddedCluster) -> None:
    too_large = obj(spec={"size": 11})
    with pytest.raises(Invalid) as refused:
        await guarded.create(MODEL, too_large, manager="t")
    assert [cause.path for cause in refused.value.causes] == ["spec.size"]
    with pytest.raises(Invalid):
        await guarded.apply(MODEL, too_large, manager="t")
    made = await guarded.create(MODEL, obj(spec={"size": 5}), manager="t")
    with pytest.raises(Invalid):
        await guarded.apply(MODEL, too_large, manager="u", force=True)
    with pytest.raises(Invalid, match="shrink"):
        await guarded.patch(MODEL, "a", {"spec": {"size": 4}}, "ns", manager="t")
    with pytest.raises(Invalid):
        await guarded.patch(MODEL, "a", {"spec": {"size": 11}}, "ns", manager="t", dry_run=True)
    assert await guarded.get(MODEL, "a", "ns") == made


async def test_a_validator_is_given_the_state_that_will_be_replaced(guarded: EmbeddedCluster, sizes: Sizes) -> None:
    await guarded.create(MODEL, obj(spec={"size": 1}), manager="t")
    await asyncio.gather(
        *(guarded.patch(MODEL, "a", {"spec": {"size": size}}, "ns", manager="t") for size in (2, 3, 4))
    )
    assert sizes.asked == [(None, 1), (1, 2), (2, 3), (3, 4)]


async def test_status_and_what_changes_nothing_are_not_validated(guarded: EmbeddedCluster, sizes: Sizes) -> None:
    await guarded.create(MODEL, obj(spec={"size": 1}), manager="t")
    sizes.asked.clear()
    await guarded.patch(MODEL, "a", {"status": {"x": 1}}, "ns", manager="t", subresource="status")
    await guarded.apply(MODEL, obj() | {"status": {"x": 2}}, manager="t", subresource="status", force=True)
    await guarded.patch(MODEL, "a", {"spec": {"size": 1}}, "ns", manager="t")
    assert sizes.asked == []


async def test_an_object_that_goes_loses_its_finalizers_whatever_a_newer_rule_says(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path / "store.db") as lenient:
        await lenient.create(MODEL, obj(spec={"size": 99}, finalizers=["example.org/hold"]), manager="t")
        await lenient.delete(MODEL, "a", "ns")
    async with embedded_cluster(tmp_path / "store.db", validators={MODEL: Sizes()}) as strict:
        await strict.patch(MODEL, "a", {"metadata": {"finalizers": None}}, "ns", manager="t")
        with pytest.raises(NotFound):
            await strict.get(MODEL, "a", "ns")


@pytest.fixture
async def strayed(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster with the Model ns/a, stored by a version that allowed the misspelt `metadata.lables`."""
    store = Store.open(tmp_path / "strayed.db")
    async with running(store) as cluster:
        made = await cluster.create(MODEL, obj(spec={"size": 1}, finalizers=["a.b/c"]), manager="t")
        stray = {**made, "metadata": {**made["metadata"], "lables": {"x": "y"}}}
        await store.update(MODEL, Key("ns", "a"), lambda before: stray)
        yield cluster


@pytest.mark.parametrize(
    ("patch", "type"),
    [
        ({"metadata": {"lables": None}}, "merge"),
        ([{"op": "remove", "path": "/metadata/lables"}], "json"),
        ([{"op": "add", "path": "/metadata/lables", "value": None}], "json"),
    ],
)
async def test_a_field_of_metadata_that_is_none_can_be_removed(strayed: EmbeddedCluster, patch: Any, type: Any) -> None:
    before = await strayed.get(MODEL, "a", "ns")
    assert before["metadata"]["lables"] == {"x": "y"}
    await strayed.patch(MODEL, "a", patch, "ns", manager="t", type=type)
    after = await strayed.get(MODEL, "a", "ns")
    assert "lables" not in after["metadata"]
    assert (generation_of(after), after["spec"]) == (generation_of(before), before["spec"])
    assert version_of(after) != version_of(before)
    with pytest.raises(Invalid, match=r"metadata\.lables: unknown field"):
        await strayed.patch(MODEL, "a", {"metadata": {"lables": {"x": "y"}}}, "ns", manager="t")


async def test_a_field_whose_name_would_write_lines_is_shown_on_one(strayed: EmbeddedCluster) -> None:
    with pytest.raises(Invalid) as refused:
        await strayed.patch(MODEL, "a", {"metadata": {"\n\x1b[31m": 1}}, "ns", manager="t")
    assert str(refused.value).isprintable()


async def test_an_apply_of_null_removes_a_field_of_metadata_that_is_none(strayed: EmbeddedCluster) -> None:
    await strayed.apply(MODEL, obj(lables=None), manager="u")
    assert "lables" not in (await strayed.get(MODEL, "a", "ns"))["metadata"]


async def test_an_object_stored_with_an_unknown_field_of_metadata_can_be_changed_and_go(
    strayed: EmbeddedCluster,
) -> None:
    patched = await strayed.patch(MODEL, "a", {"spec": {"size": 2}}, "ns", manager="t")
    assert patched["spec"] == {"size": 2}
    for wanted in (obj(spec={"other": 1}), obj(spec={"other": 1}, lables={"x": "z"})):
        applied = await strayed.apply(MODEL, wanted, manager="u")
        assert applied["spec"] == {"size": 2, "other": 1}
    told = await strayed.patch(MODEL, "a", {"status": {"x": 1}}, "ns", manager="t", subresource="status")
    assert told["status"] == {"x": 1}
    for bring in (
        strayed.patch(MODEL, "a", {"metadata": {"zones": 1}}, "ns", manager="t"),
        strayed.apply(MODEL, obj(zones=1), manager="u"),
        strayed.apply(MODEL, obj("b", zones=1), manager="u"),
        strayed.create(MODEL, obj("b", zones=1), manager="u"),
    ):
        with pytest.raises(Invalid, match=r"metadata\.zones: unknown field"):
            await bring
    [refused] = await strayed.create_all(MODEL, [obj("b", zones=1)], manager="t")
    assert isinstance(refused, Invalid)
    assert "zones" not in (await strayed.create(MODEL, obj("b", zones=None), manager="t"))["metadata"]

    await strayed.delete(MODEL, "a", "ns")
    await strayed.patch(MODEL, "a", {"metadata": {"finalizers": None}}, "ns", manager="t")
    with pytest.raises(NotFound):
        await strayed.get(MODEL, "a", "ns")


async def test_pods_wait_for_their_node(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        await cluster.create(POD, obj(spec={"terminationGracePeriodSeconds": 45}), manager="t")
        await cluster.delete(POD, "a", "ns")
        pod = await cluster.get(POD, "a", "ns")
        assert pod["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:45Z"
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 45
        await cluster.delete(POD, "a", "ns")
        assert version_of(await cluster.get(POD, "a", "ns")) == version_of(pod)
        await cluster.delete(POD, "a", "ns", grace_period=5)
        assert (await cluster.get(POD, "a", "ns"))["metadata"]["deletionGracePeriodSeconds"] == 5
        await cluster.delete(POD, "a", "ns", grace_period=0)
        with pytest.raises(NotFound):
            await cluster.get(POD, "a", "ns")


async def test_a_pod_with_a_finalizer_outlives_its_grace(cluster: EmbeddedCluster) -> None:
    await cluster.create(POD, obj(finalizers=["example.org/hold"]), manager="t")
    await cluster.delete(POD, "a", "ns", grace_period=0)
    assert is_deleting(await cluster.get(POD, "a", "ns"))
    await cluster.patch(POD, "a", {"metadata": {"finalizers": []}}, "ns", manager="t")
    with pytest.raises(NotFound):
        await cluster.get(POD, "a", "ns")


async def test_a_finalizer_that_goes_first_does_not_take_a_pod_from_its_node(cluster: EmbeddedCluster) -> None:
    await cluster.create(POD, obj(finalizers=["example.org/hold"]), manager="t")
    await cluster.delete(POD, "a", "ns")
    await cluster.patch(POD, "a", {"metadata": {"finalizers": []}}, "ns", manager="t")
    assert is_deleting(await cluster.get(POD, "a", "ns"))


async def test_the_mark_of_deletion_raises_the_generation(cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, obj(finalizers=["example.org/hold"]), manager="t")
    await cluster.delete(MODEL, "a", "ns")
    assert generation_of(await cluster.get(MODEL, "a", "ns")) == 2


async def test_kinds_without_a_status_subresource_keep_status_as_content(cluster: EmbeddedCluster) -> None:
    made = await cluster.create(SECRET, obj() | {"data": {"k": "v"}, "status": {"x": 1}}, manager="t")
    assert (made["data"], made["status"]) == ({"k": "v"}, {"x": 1})


async def test_the_scale_subresource_speaks_scale_in_all_verbs(cluster: EmbeddedCluster) -> None:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}}
    made = await cluster.create(DEPLOYMENT, obj(spec=spec), manager="t")
    await cluster.patch(DEPLOYMENT, "a", {"status": {"replicas": 1}}, "ns", manager="t", subresource="status")
    shown = await cluster.scale(DEPLOYMENT, "a", "ns", 2, manager="s")
    assert shown["apiVersion"] == "autoscaling/v1"
    assert shown["status"] == {"replicas": 1, "selector": "app=x"}
    scale = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"replicas": 3}}
    applied = await cluster.apply(DEPLOYMENT, scale, manager="hpa", subresource="scale", force=True)
    assert applied["spec"] == {"replicas": 3}
    stale = {"metadata": {"resourceVersion": version_of(made)}, "spec": {"replicas": 4}}
    with pytest.raises(Conflict):
        await cluster.patch(DEPLOYMENT, "a", stale, "ns", manager="s", subresource="scale")
    for wrong in (True, "3", None, 1.5, 2**31):
        with pytest.raises(Invalid, match=r"spec\.replicas"):
            await cluster.patch(DEPLOYMENT, "a", {"spec": {"replicas": wrong}}, "ns", manager="s", subresource="scale")
    after = await cluster.get(DEPLOYMENT, "a", "ns")
    assert after["spec"] == spec | {"replicas": 3}
    assert generation_of(after) == 3


async def test_an_apply_of_bad_replicas_to_the_scale_is_refused(cluster: EmbeddedCluster) -> None:
    await cluster.create(DEPLOYMENT, obj(spec={"replicas": 1}), manager="t")
    for wrong in (-1, "3", None):
        with pytest.raises(Invalid, match=r"spec\.replicas"):
            await cluster.apply(DEPLOYMENT, obj(spec={"replicas": wrong}), manager="s", subresource="scale", force=True)


async def test_a_watch_from_no_version_begins_with_what_is_there(cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, obj(labels={"see": "yes"}), manager="t")
    await cluster.create(MODEL, obj("hidden"), manager="t")
    for version in ("", "0"):
        event = await anext(cluster.watch(MODEL, version, "ns", "see=yes"))
        assert (event.type, name_of(event.object)) == ("ADDED", "a")
    with pytest.raises(Invalid, match="resourceVersion"):
        cluster.watch(MODEL, "latest")


async def test_many_generated_names_collide_with_nobody(cluster: EmbeddedCluster) -> None:
    template: Object = {"metadata": {"generateName": "x" * 100, "namespace": "ns"}}
    made = await asyncio.gather(*(cluster.create(MODEL, template, manager="t") for _ in range(200)))
    names = {name_of(one) for one in made}
    assert len(names) == 200
    assert {len(name) for name in names} == {63}


async def test_the_list_of_a_thousand_objects_is_quick(cluster: EmbeddedCluster) -> None:
    await asyncio.gather(*(cluster.create(MODEL, obj(f"m{n}", spec={"n": n}), manager="t") for n in range(1000)))
    loop = asyncio.get_running_loop()
    best = 1.0
    for _ in range(5):
        started = loop.time()
        assert len((await cluster.list(MODEL, "ns")).items) == 1000
        best = min(best, loop.time() - started)
    assert best < 0.005


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"labels": {"a": "1"}},
        {"labels": {"a": "2", "b": "1"}},
        {"labels": {"a": "1"}, "annotations": {"c": "1"}},
        {"labels": {"a": "1"}, "finalizers": ["d/e"]},
        {"ownerReferences": [OWNER]},
    ],
)
async def test_objects_made_together_have_the_managers_that_each_has_alone(tmp_path: Path, given: Any) -> None:
    async with embedded_cluster(tmp_path / "c.db", clock=SteppedClock()) as cluster:
        wanted = [obj(f"o{number}", spec={"n": number}, **given) for number in range(3)]
        other = obj("other", spec={"n": 1}, labels={"z": "1"})
        together = await cluster.create_all(MODEL_EVENT, [*wanted, other, obj("bare")], manager="m")
        for number, one in enumerate([*wanted, other, obj("bare")]):
            alone = await cluster.create(MODEL_EVENT, {**one, **obj(f"alone{number}", **given_of(one))}, manager="m")
            made = together[number]
            assert isinstance(made, dict)
            assert made["metadata"]["managedFields"] == alone["metadata"]["managedFields"]


def given_of(one: Object) -> Any:
    """Return the metadata without name and namespace."""
    return {key: value for key, value in one["metadata"].items() if key not in ("name", "namespace")}
