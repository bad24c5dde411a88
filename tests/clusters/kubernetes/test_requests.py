"""The requests of the adapter, its reading of responses, and its retries after lost races."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.base.errors import ClusterError, Conflict, Gone, Invalid, Unavailable
from clusters.base.objects import name_of
from clusters.kubernetes import KubernetesCluster
from clusters.kubernetes.cluster import RACES
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
    FakeApiServer,
    answer,
    refuse,
)  # fmt: skip
from tests.clusters.kubernetes.calls import CALLS
from tests.clusters.kubernetes.conftest import Connected
from tests.contract.widgets import WIDGET, widget

MODIFIED = refuse(409, "Conflict", "Operation cannot be fulfilled: the object has been modified; please apply again")


async def test_a_write_that_lost_a_race_inside_the_server_is_sent_again(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.script("other", *[MODIFIED] * RACES)
    await CALLS["apply"](cluster)
    assert len(server.asked) == RACES + 1


async def test_a_storm_of_conflicts_ends_in_a_conflict(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.always["other"] = MODIFIED
    with pytest.raises(Conflict):
        await CALLS["patch"](cluster)
    assert len(server.asked) == RACES + 1


@pytest.mark.parametrize(
    ("patch", "type"),
    [({"metadata": {"resourceVersion": "1"}}, "merge"), ([{"op": "test", "path": "/a", "value": 1}], "json")],
)
async def test_a_write_with_a_precondition_is_never_sent_twice(
    server: FakeApiServer, cluster: KubernetesCluster, patch: Any, type: Any
) -> None:
    server.always["other"] = MODIFIED
    with pytest.raises(Conflict):
        await cluster.patch(WIDGET, "w", patch, NAMESPACE, manager="t", type=type)
    assert len(server.asked) == 1


async def test_a_list_comes_in_pages(server: FakeApiServer, connected: Connected) -> None:
    cluster = await connected(page=2)
    for n in range(5):
        server.put(f"w{n}")
    listed = await cluster.list(WIDGET, selector="a=b")
    assert [name_of(obj) for obj in listed.items] == [f"w{n}" for n in range(5)]
    assert listed.resource_version == "105"
    assert [asked.query.get("continue") for asked in server.asked] == [None, "2", "4"]
    assert {asked.query["labelSelector"] for asked in server.asked} == {"a=b"}


@pytest.mark.fault("K3")
async def test_when_the_snapshot_of_a_list_expires_it_is_read_anew_and_whole(
    server: FakeApiServer, connected: Connected
) -> None:
    cluster = await connected(page=2)
    for n in range(5):
        server.put(f"w{n}")
    server.script("list", server.well, refuse(410, "Expired", "The provided continue parameter is too old"))
    listed = await cluster.list(WIDGET)
    assert [name_of(obj) for obj in listed.items] == [f"w{n}" for n in range(5)]
    assert "limit" not in server.asked[-1].query and "continue" not in server.asked[-1].query


async def test_a_list_that_stays_gone_says_so(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.always["list"] = refuse(410, "Expired")
    with pytest.raises(Gone):
        await cluster.list(WIDGET)
    assert len(server.asked) == 2


async def test_items_of_built_in_lists_say_what_they_are(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    bare = {"metadata": {"name": "w", "namespace": NAMESPACE}}
    server.script("list", answer(200, {"metadata": {"resourceVersion": "1"}, "items": [bare]}))
    (item,) = (await cluster.list(WIDGET)).items
    assert (item["apiVersion"], item["kind"]) == (WIDGET.api_version, WIDGET.kind)


async def test_an_answer_that_is_no_list_is_a_trouble_that_may_pass(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.script("list", answer(200, {"hello": "world"}))
    with pytest.raises(Unavailable):
        await cluster.list(WIDGET)


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_that_is_none_never_reaches_the_collection(
    server: FakeApiServer, cluster: KubernetesCluster, name: str
) -> None:
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await cluster.delete(WIDGET, name, NAMESPACE)
    with pytest.raises(Invalid, match=r"metadata\.namespace"):
        await cluster.get(WIDGET, "w", name)
    assert not server.asked


async def test_a_redirect_is_not_followed(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.script("other", answer(302, b"", Location="http://127.0.0.1:1/"))
    with pytest.raises(ClusterError):
        await cluster.get(WIDGET, "w", NAMESPACE)


async def test_why_a_json_patch_was_refused_is_found_out(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.put("w", a=1)
    plain = refuse(422, "Invalid", "the server rejected our request due to an error in our request")

    async def patch(*operations: dict[str, Any]) -> None:
        server.script("other", plain)
        await cluster.patch(WIDGET, "w", operations, NAMESPACE, manager="t", type="json")

    with pytest.raises(Conflict, match="test failed"):
        await patch({"op": "test", "path": "/spec/a", "value": 2})
    with pytest.raises(Invalid, match="absent"):
        await patch({"op": "remove", "path": "/spec/absent"})
    with pytest.raises(Conflict, match="meanwhile"):
        await patch({"op": "test", "path": "/spec/a", "value": 1})
    with pytest.raises(Invalid, match="cannot be applied"):
        await patch({"op": "replace", "path": "/spec/a", "value": 3})


async def test_what_is_sent_is_what_the_api_wants(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    obj = widget(NAMESPACE, spec={"a": 1}, managedFields=[{"manager": "x"}])
    await cluster.apply(WIDGET, obj, manager="knodel", force=True, dry_run=True)
    await cluster.apply(WIDGET, obj | {"spec": {"replicas": 2}}, manager="knodel", subresource="scale")
    await cluster.delete(WIDGET, "w", NAMESPACE, uid="u", resource_version="7", grace_period=0)
    applied, scaled, deleted = server.asked
    assert applied.query == {"fieldManager": "knodel", "fieldValidation": "Strict", "force": "true", "dryRun": "All"}
    assert applied.headers["content-type"] == "application/apply-patch+yaml"
    assert json.loads(applied.body)["metadata"] == {"name": "w", "namespace": NAMESPACE}
    assert scaled.path.endswith("/widgets/w/scale")
    assert json.loads(scaled.body)["spec"] == {"replicas": 2} and json.loads(scaled.body)["kind"] == "Scale"
    assert json.loads(deleted.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
    }
