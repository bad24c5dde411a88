"""Informers: local copies that recover from every failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clusters.base.api import Cluster, ObjectList, Trim, WatchEvent
from clusters.base.errors import ClusterError, FieldError, Forbidden, Gone, Invalid, Unavailable
from clusters.base.objects import MODEL, SECRET, Kind, Object, name_of, owner_reference, version_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informer, Informers, InformerSets
from tests.support.clock import SteppedClock
from tests.support.wait import eventually


class Troubled:
    """A cluster whose next lists and watches may fail, and whose watches may be cut off."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.list_errors: deque[ClusterError] = deque()
        self.watch_errors: deque[ClusterError] = deque()
        self.lists = 0
        self.watched_from: list[str] = []
        self.cut = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", *, trim: Trim | None = None
    ) -> ObjectList:
        """The real list, unless an error waits."""
        self.lists += 1
        if self.list_errors:
            raise self.list_errors.popleft()
        return await self._cluster.list(kind, namespace, selector, trim=trim)

    async def watch(
        self, kind: Kind, resource_version: str, namespace: str | None = None, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """The real watch; it ends, or raises the error that waits, when `cut` is set."""
        self.watched_from.append(resource_version)
        events = self._cluster.watch(kind, resource_version, namespace, selector)
        while True:
            event = asyncio.ensure_future(anext(events))
            cut = asyncio.create_task(self.cut.wait())
            await asyncio.wait({event, cut}, return_when=asyncio.FIRST_COMPLETED)
            cut.cancel()
            if not event.done():
                event.cancel()
                self.cut.clear()
                if self.watch_errors:
                    raise self.watch_errors.popleft()
                return
            yield event.result()


async def make(cluster: Cluster, name: str, **metadata: Any) -> Object:
    """Store one Model."""
    return await cluster.create(MODEL, {"metadata": {"name": name, "namespace": "ns", **metadata}}, manager="t")


@contextlib.asynccontextmanager
async def running(informer: Informer | Informers | InformerSets) -> AsyncIterator[None]:
    """Run until the block ends."""
    task = asyncio.create_task(informer.run())
    try:
        synced = asyncio.create_task(informer.synced())
        await asyncio.wait({task, synced}, return_when=asyncio.FIRST_COMPLETED)
        synced.cancel()
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def names(informer: Informer) -> set[str]:
    """What the informer holds."""
    return {name_of(obj) for obj in informer}


async def test_an_informer_holds_what_is_there_and_follows(cluster: EmbeddedCluster) -> None:
    first = await make(cluster, "a")
    informer = Informer(cluster, MODEL)
    heard: list[tuple[str, str]] = []
    informer.subscribe(lambda before, after: heard.append((version_of(before or {"metadata": {}}), _name(after))))
    async with running(informer):
        assert informer.get("a", "ns") is first
        await make(cluster, "b")
        await cluster.patch(MODEL, "a", {"spec": {"x": 1}}, "ns", manager="t")
        await cluster.delete(MODEL, "b", "ns")
        await eventually(lambda: len(heard) == 4)
    assert heard[0] == ("", "a")
    assert heard[1] == ("", "b")
    assert heard[2] == (version_of(first), "a")
    assert heard[3][1] == ""
    assert names(informer) == {"a"}


async def test_a_late_subscriber_hears_what_is_known(cluster: EmbeddedCluster) -> None:
    await make(cluster, "a")
    informer = Informer(cluster, MODEL)
    async with running(informer):
        heard: list[str] = []
        informer.subscribe(lambda before, after: heard.append(_name(after)))
        assert heard == ["a"]


@pytest.mark.fault("K3")
async def test_after_gone_it_lists_again_and_notices_what_was_deleted_meanwhile(cluster: EmbeddedCluster) -> None:
    troubled = Troubled(cluster)
    for name in ("stays", "goes", "changes"):
        await make(cluster, name)
    informer = Informer(troubled, MODEL)
    heard: list[tuple[str, str]] = []
    async with running(informer):
        await eventually(lambda: troubled.watched_from)
        informer.subscribe(lambda before, after: heard.append((_name(before), _name(after))))
        heard.clear()
        troubled.watch_errors.append(Gone("too old"))
        troubled.cut.set()
        await asyncio.sleep(0)
        await cluster.delete(MODEL, "goes", "ns")
        await cluster.patch(MODEL, "changes", {"spec": {"x": 1}}, "ns", manager="t")
        await make(cluster, "comes")
        await eventually(lambda: names(informer) == {"stays", "changes", "comes"})
        await eventually(lambda: troubled.lists == 2)
    assert ("goes", "") in heard and ("changes", "changes") in heard and ("", "comes") in heard
    assert not any("stays" in pair for pair in heard)


async def test_a_watch_that_ends_is_resumed_without_a_list(cluster: EmbeddedCluster) -> None:
    troubled = Troubled(cluster)
    informer = Informer(troubled, MODEL)
    async with running(informer):
        made = await make(cluster, "a")
        await eventually(lambda: names(informer) == {"a"})
        troubled.cut.set()
        await make(cluster, "b")
        await eventually(lambda: names(informer) == {"a", "b"})
    assert troubled.lists == 1
    assert int(troubled.watched_from[-1]) >= int(version_of(made))


@pytest.mark.parametrize("error", [Unavailable("down"), Forbidden("not yet"), ClusterError("server error")])
async def test_a_failed_list_is_tried_again_with_growing_delay(cluster: EmbeddedCluster, error: ClusterError) -> None:
    troubled, clock = Troubled(cluster), SteppedClock()
    troubled.list_errors.extend([error, error])
    informer = Informer(troubled, MODEL, clock=clock)
    task = asyncio.create_task(informer.run())
    await eventually(lambda: troubled.lists == 1)
    await asyncio.sleep(0)
    clock.step(0.1)
    await eventually(lambda: troubled.lists == 2)
    await asyncio.sleep(0)
    clock.step(0.1)
    await asyncio.sleep(0)
    assert troubled.lists == 2
    clock.step(0.1)
    await informer.synced()
    task.cancel()


async def test_a_server_says_itself_when_to_come_again(cluster: EmbeddedCluster) -> None:
    troubled, clock = Troubled(cluster), SteppedClock()
    troubled.list_errors.append(Unavailable("busy", retry_after=30))
    informer = Informer(troubled, MODEL, clock=clock)
    task = asyncio.create_task(informer.run())
    await eventually(lambda: troubled.lists == 1)
    await asyncio.sleep(0)
    clock.step(29)
    await asyncio.sleep(0)
    assert troubled.lists == 1
    clock.step(1)
    await informer.synced()
    task.cancel()


async def test_a_bad_selector_is_an_error_at_once(cluster: EmbeddedCluster) -> None:
    with pytest.raises(Invalid):
        await Informer(cluster, MODEL, selector="a=b=c").run()


async def test_objects_are_found_by_owner_and_by_other_indexes(cluster: EmbeddedCluster) -> None:
    owner = await make(cluster, "owner")
    await make(cluster, "child", ownerReferences=[owner_reference(MODEL, owner)], labels={"colour": "red"})
    informer = Informer(cluster, MODEL)
    informer.add_index("colour", lambda obj: (obj["metadata"].get("labels") or {}).values())
    async with running(informer):
        assert [name_of(obj) for obj in informer.indexed("owner", owner["metadata"]["uid"])] == ["child"]
        assert [name_of(obj) for obj in informer.indexed("colour", "red")] == ["child"]
        patch = {"metadata": {"labels": {"colour": "blue"}}}
        await cluster.patch(MODEL, "child", patch, "ns", manager="t")
        await eventually(lambda: informer.indexed("colour", "blue"))
        assert informer.indexed("colour", "red") == []
        informer.add_index("late", lambda obj: (name_of(obj)[0],))
        assert len(informer.indexed("late", "c")) == 1


async def test_an_informer_of_a_selection_forgets_what_stops_matching(cluster: EmbeddedCluster) -> None:
    await make(cluster, "a", labels={"see": "yes"})
    informer = Informer(cluster, MODEL, selector="see=yes")
    async with running(informer):
        assert names(informer) == {"a"}
        await cluster.patch(MODEL, "a", {"metadata": {"labels": {"see": "no"}}}, "ns", manager="t")
        await eventually(lambda: not len(informer))


async def test_informers_are_shared_by_kind(cluster: EmbeddedCluster) -> None:
    informers = Informers(cluster)
    assert informers[MODEL] is informers[MODEL]
    assert informers[MODEL] is not informers[SECRET]
    await make(cluster, "a")
    async with running(informers):
        await informers.synced()
        assert names(informers[MODEL]) == {"a"}


def _name(obj: Object | None) -> str:
    return name_of(obj) if obj is not None else ""


async def test_an_answer_that_calls_the_request_invalid_does_not_end_it(cluster: EmbeddedCluster) -> None:
    troubled = Troubled(cluster)
    troubled.list_errors.append(Invalid("list", [FieldError("", "a proxy that is just being set up said 400")]))
    informer = Informer(troubled, MODEL)
    async with running(informer):
        await asyncio.wait_for(informer.synced(), 5)


async def test_informers_can_be_narrowed_to_a_namespace_and_by_labels(cluster: EmbeddedCluster) -> None:
    for namespace, labels in (("n", {"a": "b"}), ("n", {}), ("m", {"a": "b"})):
        metadata = {"generateName": "x-", "namespace": namespace, "labels": labels}
        await cluster.create(SECRET, {"metadata": metadata}, manager="tests")
    informers = Informers(cluster, namespace="n", selectors={SECRET: "a"})
    informers[SECRET]

    running = asyncio.create_task(informers.run())
    await informers.synced()

    assert [one["metadata"]["namespace"] for one in informers[SECRET]] == ["n"]
    assert [one.kind for one in informers] == [SECRET]
    running.cancel()


@pytest.mark.fault("K11")
async def test_an_object_that_a_handler_or_an_index_cannot_bear_stops_neither_the_watch_nor_others(
    cluster: EmbeddedCluster,
) -> None:
    heard: list[str] = []

    def bear(obj: Object | None) -> list[str]:
        name = name_of(obj) if obj is not None else ""
        if name.startswith("poison"):
            raise TypeError(name)
        return [name]

    informer = Informer(cluster, MODEL)
    informer.add_index("name", bear)
    informer.subscribe(lambda _, after: heard.extend(bear(after)))
    await make(cluster, "poison-from-the-start")
    async with running(informer):
        await make(cluster, "poison-later")
        await make(cluster, "good")
        await eventually(lambda: heard == ["good"])
        informer.subscribe(lambda before, after: heard.extend(bear(after)))
        assert heard == ["good", "good"]
        assert names(informer) == {"poison-from-the-start", "poison-later", "good"}
        assert [name_of(one) for one in informer.indexed("name", "good")] == ["good"]
        await cluster.delete(MODEL, "poison-later", "ns")
        await eventually(lambda: names(informer) == {"poison-from-the-start", "good"})
