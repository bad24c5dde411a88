"""Watches and informers under faults of API server and network: 410, silence, invalid data, resets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from clusters.base.errors import Forbidden, Gone, NotFound
from clusters.base.objects import name_of, version_of
from clusters.kubernetes import KubernetesCluster, Timeouts
from clusters.runtime.informer import Informer
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
    Asked,
    FakeApiServer,
    Step,
    answer,
    failure,
    hang,
    refuse,
    reset,
    stream,
)  # fmt: skip
from tests.contract.test_watch import take, told
from tests.contract.widgets import WIDGET, widget
from tests.support.loops import at_work
from tests.support.wait import eventually


@asynccontextmanager
async def following(cluster: KubernetesCluster) -> AsyncIterator[Informer]:
    """An informer of all Widgets that has its first list."""
    informer = Informer(cluster, WIDGET)
    async with at_work(informer.run()):
        await informer.synced()
        yield informer


def names(informer: Informer) -> set[str]:
    """What it holds."""
    return {name_of(obj) for obj in informer}


def expired_line(reason: str = "Expired") -> bytes:
    """410 within the stream."""
    return json.dumps({"type": "ERROR", "object": failure(410, reason, "too old resource version: 1 (9)")}).encode()


TOO_LARGE = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}

BREAKS: dict[str, Step] = {
    "ends in order at once": stream(),
    "is cut": stream(then="cut"),
    "is reset": stream(then="reset"),
    "is reset before its head": reset,
    "is refused with 503": refuse(503, "ServiceUnavailable"),
    "is refused with 503 by a proxy": answer(503, b"<html>down</html>"),
    "is refused with 504": refuse(504, "Timeout"),
    "is refused with 500 by etcd": refuse(500, "", "etcdserver: leader changed"),
    "is refused with 429": refuse(429, "TooManyRequests", Retry_After="1"),
    "breaks within a line": stream(b'{"type":"ADDED","object":{"apiVer', then="cut"),
    "breaks within a line, reset": stream(b'{"type":"ADDED","object":{"apiVer', then="reset"),
    "is garbage": stream(b"<html>502</html>\n", then="hang"),
    "is JSON that is no event": stream(b'{"hello":1}\n', then="hang"),
    "has an event without a version": stream(b'{"type":"ADDED","object":{"metadata":{}}}\n', then="hang"),
    "has an event with strange metadata": stream(b'{"type":"ADDED","object":{"metadata":[1]}}\n', then="hang"),
    "has an event without a name": stream(
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"9"}}}\n', then="hang"
    ),
    "has a version that is no number": stream(
        b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"ten"}}}\n', then="hang"
    ),
    "tells of an unknown type": stream(b'{"type":"MOVED","object":{"metadata":{}}}\n', then="hang"),
    "says that the server is busy": stream(
        json.dumps({"type": "ERROR", "object": failure(503, "ServiceUnavailable")}).encode() + b"\n", then="hang"
    ),
    "says nothing": stream(then="hang"),
    "has no answer": hang,
}


@pytest.mark.parametrize("trouble", BREAKS)
async def test_a_watch_that_goes_on_where_it_stood(
    server: FakeApiServer, cluster: KubernetesCluster, trouble: str
) -> None:
    server.put("before")
    listed = await cluster.list(WIDGET)
    server.put("a")
    server.script("watch", BREAKS[trouble])
    events = await take(cluster.watch(WIDGET, listed.resource_version), 1)
    server.put("b")
    server.script("watch", BREAKS[trouble])
    events += await take(cluster.watch(WIDGET, version_of(events[0].object)), 1)
    assert told(events) == [("ADDED", "a"), ("ADDED", "b")]
    assert sum("limit" in asked.query and asked.query["limit"] != "1" for asked in server.asked) == 1


async def test_what_came_before_the_break_is_not_told_again(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    listed = await cluster.list(WIDGET)
    first, second = server.put("a"), server.put("b")
    server.script("watch", stream(server.line("ADDED", first), server.line("ADDED", second)[:50], then="reset"))
    server.put("c")
    assert told(await take(cluster.watch(WIDGET, listed.resource_version), 3)) == [
        ("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"),
    ]  # fmt: skip
    assert server.versions_watched() == [listed.resource_version, version_of(first)]


async def test_a_bookmark_moves_the_place_to_go_on_from(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    mark = widget(NAMESPACE, "", resourceVersion="100")
    server.script("watch", stream(server.line("BOOKMARK", mark)))
    watch = cluster.watch(WIDGET, "50")
    assert (await anext(watch)).type == "BOOKMARK"
    server.put("a")
    assert (await anext(watch)).object["metadata"]["name"] == "a"
    assert server.versions_watched() == ["50", "100"]


@pytest.mark.fault("K3")
@pytest.mark.parametrize(
    "step",
    [
        refuse(410, "Expired"),
        refuse(410, "Gone"),
        answer(410, b"gone"),
        stream(expired_line() + b"\n", then="hang"),
        stream(expired_line("Gone") + b"\n"),
        answer(504, failure(504, "Timeout", "Too large resource version", TOO_LARGE)),
    ],
    ids=["status expired", "status gone", "plain", "in stream", "in stream gone", "version of the future"],
)
async def test_a_version_that_is_gone_is_told_whichever_way_the_server_says_so(
    server: FakeApiServer, cluster: KubernetesCluster, step: Step
) -> None:
    server.script("watch", step)
    with pytest.raises(Gone):
        await take(cluster.watch(WIDGET, "1"), 1)
    assert server.count("watch") == 1


@pytest.mark.fault("K3")
async def test_the_informer_lists_again_and_notices_what_was_deleted_meanwhile(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    for name in ("stays", "goes", "changes"):
        server.put(name, n=1)
    server.script("watch", stream(then="hang"))
    async with following(cluster) as informer:
        await eventually(lambda: server.count("watch") == 1)
        server.remove("goes")
        server.put("changes", n=2)
        server.put("comes")
        server.forget_history()
        await eventually(lambda: names(informer) == {"stays", "changes", "comes"})
        changed = informer.get("changes", NAMESPACE)
        assert changed is not None and changed["spec"] == {"n": 2}
        server.put("after")
        await eventually(lambda: "after" in names(informer))
    assert server.count("list") == 2


async def test_what_was_deleted_while_the_watch_was_down_is_heard_without_a_list(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.put("goes")
    server.script("watch", *[refuse(503)] * 3)
    async with following(cluster) as informer:
        server.remove("goes")
        await eventually(lambda: not names(informer))
    assert server.count("list") == 1


@pytest.mark.fault("K3")
async def test_a_server_that_always_says_gone_is_asked_less_and_less(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.always["watch"] = refuse(410, "Expired")
    async with following(cluster):
        await eventually(lambda: server.count("list") >= 4)
    lists = [asked.at for asked in server.asked if asked.sort == "list"]
    pauses = [later - earlier for earlier, later in pairwise(lists)]
    assert pauses[0] >= 0.1 and pauses[1] >= 0.2 and pauses[2] >= 0.4


async def test_garbage_that_comes_again_and_again_ends_in_a_new_list(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.script("watch", *[stream(b"garbage\n")] * 3)
    async with following(cluster) as informer:
        await eventually(lambda: server.count("list") == 2)
        server.put("a")
        await eventually(lambda: names(informer) == {"a"})


@pytest.mark.fault("K4", shortened="silent for 1.2 s, not 50 s")
async def test_a_silent_socket_is_left_within_a_minute(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.script("watch", stream(then="hang"))
    listed = await cluster.list(WIDGET)
    server.put("a")
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert told(await take(cluster.watch(WIDGET, listed.resource_version), 1)) == [("ADDED", "a")]
    assert 1.0 <= loop.time() - began < 3.0
    assert Timeouts().silence < 60


async def test_the_server_is_asked_to_end_every_watch(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.put("a")
    await take(cluster.watch(WIDGET, "100"), 1)
    (asked,) = [asked for asked in server.asked if asked.sort == "watch"]
    assert (asked.query["timeoutSeconds"], asked.query["allowWatchBookmarks"]) == ("1", "true")


async def test_a_watch_is_ended_by_the_server_and_goes_on_by_itself(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    waiting = asyncio.ensure_future(take(cluster.watch(WIDGET, "100"), 1))
    await eventually(lambda: server.count("watch") == 3)
    server.put("a")
    assert told(await waiting) == [("ADDED", "a")]


async def test_an_object_of_one_and_a_half_mebibytes_is_one_event(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    made = server.put("large", text="x" * 1_500_000)
    assert (await take(cluster.watch(WIDGET, "100"), 1))[0].object == made


async def test_a_cluster_that_was_set_back_is_noticed(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.script("watch", stream())
    with pytest.raises(Gone, match="before 999"):
        await take(cluster.watch(WIDGET, "999"), 1)


async def test_a_watch_that_is_closed_closes_its_connection(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.script("watch", stream(server.line("ADDED", server.put("a")), then="hang"))
    watch = cluster.watch(WIDGET, "100")
    await anext(watch)
    assert server.open == 1
    await watch.aclose()  # type: ignore[attr-defined]
    await eventually(lambda: server.open == 0)


async def test_an_endless_line_is_left(server: FakeApiServer, cluster: KubernetesCluster) -> None:
    server.script("watch", stream(*[b"x" * 4_000_000] * 9, then="hang"))
    server.put("a")
    assert told(await take(cluster.watch(WIDGET, "100"), 1)) == [("ADDED", "a")]


@pytest.mark.parametrize(("code", "reason", "error"), [(403, "Forbidden", Forbidden), (404, "NotFound", NotFound)])
async def test_a_watch_that_is_refused_for_good_says_so(
    server: FakeApiServer, cluster: KubernetesCluster, code: int, reason: str, error: type[Exception]
) -> None:
    server.script("watch", refuse(code, reason))
    with pytest.raises(error):
        await take(cluster.watch(WIDGET, "100"), 1)


async def test_a_watch_from_the_start_that_breaks_half_way_is_begun_anew(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.script("watch", stream(server.line("ADDED", widget(NAMESPACE, "z", resourceVersion="90")), then="cut"))
    watch = cluster.watch(WIDGET, "0")
    assert (await anext(watch)).object["metadata"]["name"] == "z"
    with pytest.raises(Gone):
        await anext(watch)


async def test_a_watch_that_lags_behind_leads_to_no_second_list(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    async def late(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        await server.well(asked, writer)

    server.script("watch", late)
    async with following(cluster) as informer:
        server.put("a")
        await eventually(lambda: names(informer) == {"a"})
    assert server.count("list") == 1
