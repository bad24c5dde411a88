"""Contract: create, get, list."""

from __future__ import annotations

import asyncio

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, Conflict, Invalid, NotFound
from clusters.base.objects import name_of, version_of
from tests.contract.widgets import WIDGET, fields_of, widget


async def test_a_created_object_has_what_the_server_gives_it(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(WIDGET, widget(namespace, spec={"size": 1}), manager="tests")
    metadata = made["metadata"]
    assert metadata["uid"] and metadata["creationTimestamp"] and metadata["resourceVersion"]
    assert metadata["generation"] == 1
    assert made["spec"] == {"size": 1}
    assert await cluster.get(WIDGET, "w", namespace) == made


async def test_the_creator_owns_its_fields_by_update(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(WIDGET, widget(namespace, spec={"size": 1}), manager="tests")
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("tests", "Update", WIDGET.api_version)
    assert "f:size" in fields_of(made, "tests")["f:spec"]


async def test_what_only_the_server_writes_is_not_taken_from_the_creator(cluster: Cluster, namespace: str) -> None:
    forged = widget(namespace, uid="forged", creationTimestamp="2000-01-01T00:00:00Z", generation=7)
    metadata = (await cluster.create(WIDGET, forged, manager="tests"))["metadata"]
    assert metadata["uid"] != "forged"
    assert metadata["creationTimestamp"] != "2000-01-01T00:00:00Z"
    assert metadata["generation"] == 1


async def test_status_is_dropped_at_creation(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(WIDGET, widget(namespace, spec={}) | {"status": {"phase": "Done"}}, manager="tests")
    assert "status" not in made


async def test_a_taken_name_is_refused(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace), manager="tests")
    with pytest.raises(AlreadyExists, match="w"):
        await cluster.create(WIDGET, widget(namespace), manager="tests")


async def test_of_many_creations_of_one_name_exactly_one_succeeds(cluster: Cluster, namespace: str) -> None:
    outcomes = await asyncio.gather(
        *(cluster.create(WIDGET, widget(namespace, spec={"n": n}), manager="tests") for n in range(20)),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19


async def test_names_are_generated(cluster: Cluster, namespace: str) -> None:
    template = widget(namespace, generateName="pump-")
    del template["metadata"]["name"]
    made = [await cluster.create(WIDGET, template, manager="tests") for _ in range(2)]
    assert all(name_of(obj).startswith("pump-") for obj in made)
    assert name_of(made[0]) != name_of(made[1])
    assert "name" not in template["metadata"]


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-a", "a" * 254, "a..b"])
async def test_a_bad_name_is_refused_with_its_field(cluster: Cluster, namespace: str, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        await cluster.create(WIDGET, widget(namespace, name), manager="tests")
    assert [cause.path for cause in refused.value.causes] == ["metadata.name"]


async def test_bad_labels_are_refused_together(cluster: Cluster, namespace: str) -> None:
    labels = {"bad key": "x", "key": "bad value"}
    with pytest.raises(Invalid) as refused:
        await cluster.create(WIDGET, widget(namespace, labels=labels), manager="tests")
    assert {cause.path.partition("[")[0] for cause in refused.value.causes} == {"metadata.labels"}
    assert len(refused.value.causes) == 2


async def test_annotations_may_have_256_kib_and_no_more(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, "fits", annotations={"a": "x" * (256 * 1024 - 1)}), manager="tests")
    with pytest.raises(Invalid, match="annotations"):
        await cluster.create(WIDGET, widget(namespace, annotations={"a": "x" * 256 * 1024}), manager="tests")


async def test_a_dry_run_stores_nothing(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, "other"), manager="tests")
    shown = await cluster.create(WIDGET, widget(namespace, spec={"a": 1}), manager="tests", dry_run=True)
    assert shown["spec"] == {"a": 1}
    with pytest.raises(NotFound):
        await cluster.get(WIDGET, "w", namespace)


async def test_absent_objects_are_not_found(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(NotFound, match="absent"):
        await cluster.get(WIDGET, "absent", namespace)
    with pytest.raises(NotFound):
        await cluster.patch(WIDGET, "absent", {}, namespace, manager="tests")
    with pytest.raises(NotFound):
        await cluster.delete(WIDGET, "absent", namespace)


async def test_a_list_sees_one_namespace_or_all(cluster: Cluster, namespace: str) -> None:
    other = f"{namespace}-b"
    for where, name in ((namespace, "b"), (namespace, "a"), (other, "c")):
        await cluster.create(WIDGET, widget(where, name), manager="tests")
    assert [name_of(obj) for obj in (await cluster.list(WIDGET, namespace)).items] == ["a", "b"]
    everywhere = await cluster.list(WIDGET)
    assert {"a", "b", "c"} <= {name_of(obj) for obj in everywhere.items}


async def test_an_empty_list_has_a_version_to_watch_from(cluster: Cluster, namespace: str) -> None:
    assert (await cluster.list(WIDGET, namespace)).resource_version


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("", ["a", "b", "c"]),
        ("tier=front", ["a"]),
        ("tier==front", ["a"]),
        ("tier!=front", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (front, back)", ["a", "b"]),
        ("tier notin (front)", ["b", "c"]),
        ("tier,team=x", ["b"]),
    ],
)
async def test_a_list_selects_by_labels(cluster: Cluster, namespace: str, selector: str, names: list[str]) -> None:
    for name, labels in (("a", {"tier": "front"}), ("b", {"tier": "back", "team": "x"}), ("c", {})):
        await cluster.create(WIDGET, widget(namespace, name, labels=labels), manager="tests")
    assert [name_of(obj) for obj in (await cluster.list(WIDGET, namespace, selector)).items] == names


@pytest.mark.parametrize("selector", ["a=b=c", "in (a)", "a in b", "a=b,,c", "=x", "a in (b", "bad key=x", "a=b c"])
async def test_a_bad_selector_is_refused(cluster: Cluster, namespace: str, selector: str) -> None:
    with pytest.raises(Invalid, match="labelSelector"):
        await cluster.list(WIDGET, namespace, selector)


async def test_every_write_raises_the_version(cluster: Cluster, namespace: str) -> None:
    first = await cluster.create(WIDGET, widget(namespace, spec={"n": 0}), manager="tests")
    second = await cluster.patch(WIDGET, "w", {"spec": {"n": 1}}, namespace, manager="tests")
    assert version_of(first) != version_of(second)


async def test_deletion_takes_preconditions(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(WIDGET, widget(namespace), manager="tests")
    with pytest.raises(Conflict, match="uid"):
        await cluster.delete(WIDGET, "w", namespace, uid="another")
    await cluster.patch(WIDGET, "w", {"spec": {"n": 1}}, namespace, manager="tests")
    with pytest.raises(Conflict, match="resourceVersion"):
        await cluster.delete(WIDGET, "w", namespace, resource_version=version_of(made))
    await cluster.delete(WIDGET, "w", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await cluster.get(WIDGET, "w", namespace)
