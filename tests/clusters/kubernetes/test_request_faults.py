"""Calls against an API server that is overloaded, down, slow, confused or does not know us."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from clusters.api import Cluster
from clusters.clock import SystemClock
from clusters.controller import Controller
from clusters.errors import ClusterError, Conflict, Forbidden, Gone, Invalid, Unavailable
from clusters.kubernetes import KubernetesCluster, Timeouts
from clusters.kubernetes.cluster import RACES
from clusters.kubernetes.retry_after import LONGEST, SHORTEST, retry_after
from clusters.objects import Key, name_of
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
    FakeApiServer,
    Step,
    answer,
    hang,
    refuse,
    reset,
    stream,
)  # fmt: skip
from tests.clusters.kubernetes.conftest import QUICK, Connected
from tests.contract.widgets import WIDGET, widget
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

BUSY = refuse(429, "TooManyRequests", "too many requests", Retry_After="1")
MODIFIED = refuse(409, "Conflict", "Operation cannot be fulfilled: the object has been modified; please apply again")
STORM = 60
"""s"""

CALLS: dict[str, Callable[[Cluster], Any]] = {
    "get": lambda cluster: cluster.get(WIDGET, "w", NAMESPACE),
    "list": lambda cluster: cluster.list(WIDGET),
    "create": lambda cluster: cluster.create(WIDGET, widget(NAMESPACE), manager="t"),
    "apply": lambda cluster: cluster.apply(WIDGET, widget(NAMESPACE), manager="t"),
    "patch": lambda cluster: cluster.patch(WIDGET, "w", {}, NAMESPACE, manager="t"),
    "delete": lambda cluster: cluster.delete(WIDGET, "w", NAMESPACE),
    "scale": lambda cluster: cluster.scale(WIDGET, "w", NAMESPACE, 1, manager="t"),
}


def sort_of(call: str) -> str:
    """Which script a call follows."""
    return "list" if call == "list" else "other"


async def storm(server: FakeApiServer, clock: SteppedClock, seconds: int) -> list[int]:
    """Step through `seconds`; how many requests came in each."""
    counts = []
    for _ in range(seconds):
        before = len(server.asked)
        clock.step(1)
        await eventually(lambda: True)
        await asyncio.sleep(0.01)  # real time for what was woken to reach the server
        counts.append(len(server.asked) - before)
    return counts


@pytest.mark.parametrize("call", CALLS)
async def test_an_overloaded_server_is_asked_again_when_it_said(
    server: FakeApiServer, connected: Connected, call: str
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock)
    server.put("w")
    server.script(sort_of(call), *[refuse(429, "TooManyRequests", Retry_After="7")] * 2)
    task = asyncio.ensure_future(CALLS[call](cluster))
    await eventually(lambda: len(server.asked) == 1)
    assert await storm(server, clock, 6) == [0] * 6
    clock.step(1)
    await eventually(lambda: len(server.asked) == 2)
    assert await storm(server, clock, 6) == [0] * 6
    clock.step(1)
    await task


async def test_in_a_storm_of_429_no_object_is_asked_for_more_than_once_a_second(
    server: FakeApiServer, connected: Connected
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock, timeouts=Timeouts(total=STORM * 2))
    server.put("w")
    server.always["other"] = BUSY
    tasks = [asyncio.ensure_future(CALLS["apply"](cluster)) for _ in range(3)]
    await eventually(lambda: len(server.asked) == 3)
    counts = await storm(server, clock, STORM)
    assert max(counts) <= 3
    del server.always["other"]
    clock.step(2)
    await asyncio.gather(*tasks)


async def test_a_storm_that_lasts_is_told_with_the_time_to_come_back(
    server: FakeApiServer, connected: Connected
) -> None:
    clock = SteppedClock()
    cluster = await connected(clock=clock, timeouts=Timeouts(total=10))
    server.always["other"] = BUSY
    task = asyncio.ensure_future(CALLS["apply"](cluster))
    await eventually(lambda: len(server.asked) == 1)
    await storm(server, clock, 10)
    with pytest.raises(Unavailable) as told:
        await task
    assert told.value.retry_after == 1
    assert len(server.asked) <= 10


async def test_who_is_sent_away_for_longer_than_the_deadline_does_not_wait_for_it(
    server: FakeApiServer, connected: Connected
) -> None:
    cluster = await connected(clock=SteppedClock(), timeouts=Timeouts(total=10))
    server.script("other", refuse(503, "ServiceUnavailable", Retry_After="30"))
    with pytest.raises(Unavailable) as told:
        await CALLS["apply"](cluster)
    assert told.value.retry_after == 30


async def test_a_controller_leaves_an_overloaded_server_alone_until_it_may_come_back(
    server: FakeApiServer, connected: Connected
) -> None:
    cluster = await connected(timeouts=Timeouts(total=0.5))
    server.always["other"] = BUSY

    async def reconcile(key: Key) -> None:
        await cluster.apply(WIDGET, widget(NAMESPACE, key.name), manager="t")

    controller = Controller("t", reconcile)
    task = asyncio.create_task(controller.run())
    controller.queue.add(Key(NAMESPACE, "w"))
    await eventually(lambda: len(server.asked) == 3)
    task.cancel()
    moments = [asked.at for asked in server.asked]
    assert moments[1] - moments[0] >= 0.99 and moments[2] - moments[1] >= 0.99


UNAVAILABLE: dict[str, Step] = {
    "503": refuse(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "502 by a proxy": answer(502, b"<html>\n<h1>Bad Gateway</h1>\n</html>"),
    "504": refuse(504, "Timeout", "request did not complete within the allotted timeout"),
    "500 by etcd": refuse(500, "", "etcdserver: request timed out"),
    "a dead webhook": refuse(500, "InternalError", 'failed calling webhook "x": connection refused'),
    "no answer": hang,
    "a reset": reset,
    "half an answer": stream(b'{"metadata":', then="cut"),
    "half an answer and silence": stream(b'{"metadata":', then="hang"),
    "garbage": answer(200, b"<html>welcome to the hotel</html>"),
    "no HTTP": None,  # type: ignore[dict-item]
}


async def no_http(_: object, writer: asyncio.StreamWriter) -> None:
    """Bytes of another protocol."""
    writer.write(b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n")
    writer.close()


UNAVAILABLE["no HTTP"] = no_http


@pytest.mark.parametrize("trouble", UNAVAILABLE)
@pytest.mark.parametrize("call", ["get", "list", "apply", "delete"])
async def test_a_server_that_is_down_is_unavailable(
    server: FakeApiServer, cluster: KubernetesCluster, call: str, trouble: str
) -> None:
    server.always[sort_of(call)] = UNAVAILABLE[trouble]
    with pytest.raises(Unavailable) as told:
        await CALLS[call](cluster)
    assert WIDGET.resource in str(told.value) and "\n" not in str(told.value)
    del server.always[sort_of(call)]
    server.put("w")
    await CALLS[call](cluster)


async def test_a_server_that_is_not_there_is_unavailable_at_once(cluster: KubernetesCluster, kubeconfig: Path) -> None:
    path = kubeconfig.with_name("nowhere")
    path.write_text(kubeconfig.read_text().replace("127.0.0.1:", "127.0.0.1:1"))
    path.write_text(
        kubeconfig.read_text().split("server:")[0] + "server: http://127.0.0.1:1\n  name: c\n" + _tail(path)
    )
    async with KubernetesCluster.connect("fake", path) as nowhere:
        with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
            await nowhere.get(WIDGET, "w", NAMESPACE)


def _tail(path: Path) -> str:
    return "contexts:" + path.read_text().split("contexts:")[1]


async def test_a_refused_token_is_read_again_once(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    server.put("w")
    kubeconfig.with_name("token").write_text("second\n")
    server.script("other", refuse(401, "Unauthorized"))
    assert name_of(await cluster.get(WIDGET, "w", NAMESPACE)) == "w"
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]


async def test_a_watch_too_reads_a_refused_token_again(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    server.put("w")
    kubeconfig.with_name("token").write_text("second\n")
    server.script("watch", refuse(401, "Unauthorized"))
    assert (await anext(cluster.watch(WIDGET, "100"))).type == "ADDED"


async def test_credentials_that_stay_refused_are_said_to_be_and_not_asked_again_and_again(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.always["other"] = refuse(401, "Unauthorized", "Unauthorized")
    for _ in range(3):
        with pytest.raises(Forbidden, match="log in again"):
            await cluster.get(WIDGET, "w", NAMESPACE)
    assert len(server.asked) == 4


async def test_a_token_that_cannot_be_read_again_is_a_trouble_that_may_pass(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    kubeconfig.with_name("token").unlink()
    server.script("other", refuse(401, "Unauthorized"))
    with pytest.raises(Unavailable, match="kubeconfig"):
        await cluster.get(WIDGET, "w", NAMESPACE)


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


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        ("0", SHORTEST),
        ("-5", SHORTEST),
        ("soon", SHORTEST),
        ("", SHORTEST),
        ("1e9", SHORTEST),
        ("99999999999999999999999999", LONGEST),
        (format_datetime(datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC), usegmt=True), 20.0),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), SHORTEST),
        (format_datetime(datetime(2030, 1, 1, tzinfo=UTC), usegmt=True), LONGEST),
    ],
)
def test_retry_after_in_every_form(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, datetime(2026, 1, 1, tzinfo=UTC)) == seconds


def test_a_watch_that_would_be_dead_before_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="silence"):
        Timeouts(watch=60, silence=60)
    assert QUICK.request < 1 and SystemClock().monotonic() > 0
