"""Contract: watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from clusters.base.api import Cluster, WatchEvent
from clusters.base.errors import Invalid
from clusters.base.objects import name_of, version_of
from tests.contract.widgets import WIDGET, widget

PATIENCE = 10.0  # s


async def take(events: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    """Return the next `count` events that are not bookmarks."""
    taken: list[WatchEvent] = []
    async with asyncio.timeout(PATIENCE):
        while len(taken) < count:
            event = await anext(events)
            if event.type != "BOOKMARK":
                taken.append(event)
    return taken


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    """Return type and name of each event."""
    return [(event.type, name_of(event.object)) for event in events]


async def test_a_watch_goes_on_where_the_list_ended(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, "before"), manager="tests")
    listed = await cluster.list(WIDGET, namespace)
    made = await cluster.create(WIDGET, widget(namespace, "after"), manager="tests")
    changed = await cluster.patch(WIDGET, "after", {"spec": {"a": 1}}, namespace, manager="tests")
    await cluster.delete(WIDGET, "after", namespace)
    events = await take(cluster.watch(WIDGET, listed.resource_version, namespace), 3)
    assert told(events) == [("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "after")]
    assert events[0].object == made
    assert events[1].object == changed
    assert events[2].object["spec"] == {"a": 1}
    assert version_of(events[2].object) != version_of(changed)


async def test_a_watch_hears_what_happens_while_it_waits(cluster: Cluster, namespace: str) -> None:
    listed = await cluster.list(WIDGET, namespace)
    waiting = asyncio.create_task(take(cluster.watch(WIDGET, listed.resource_version, namespace), 1))
    await asyncio.sleep(0)
    made = await cluster.create(WIDGET, widget(namespace), manager="tests")
    assert (await waiting)[0].object == made


async def test_a_watch_resumes_at_the_version_of_any_event(cluster: Cluster, namespace: str) -> None:
    listed = await cluster.list(WIDGET, namespace)
    for n in range(5):
        await cluster.create(WIDGET, widget(namespace, f"w{n}"), manager="tests")
    first = await take(cluster.watch(WIDGET, listed.resource_version, namespace), 2)
    rest = await take(cluster.watch(WIDGET, version_of(first[-1].object), namespace), 3)
    assert told(first + rest) == [("ADDED", f"w{n}") for n in range(5)]


async def test_a_watch_sees_its_namespace_alone(cluster: Cluster, namespace: str) -> None:
    listed = await cluster.list(WIDGET)
    await cluster.create(WIDGET, widget(f"{namespace}-b", "elsewhere"), manager="tests")
    await cluster.create(WIDGET, widget(namespace, "here"), manager="tests")
    events = await take(cluster.watch(WIDGET, listed.resource_version, namespace), 1)
    assert told(events) == [("ADDED", "here")]


@pytest.mark.parametrize("late", [False, True], ids=["live", "from history"])
async def test_labels_decide_what_a_watch_sees(cluster: Cluster, namespace: str, late: bool) -> None:
    version = (await cluster.list(WIDGET, namespace)).resource_version
    watch = cluster.watch(WIDGET, version, namespace, "see=yes")
    seen = None if late else asyncio.create_task(take(watch, 4))
    await asyncio.sleep(0)

    async def relabel(value: str) -> None:
        await cluster.patch(WIDGET, "w", {"metadata": {"labels": {"see": value}}}, namespace, manager="tests")

    await cluster.create(WIDGET, widget(namespace, labels={"see": "no"}), manager="tests")
    await relabel("yes")
    await cluster.patch(WIDGET, "w", {"spec": {"a": 1}}, namespace, manager="tests")
    await relabel("no")
    await cluster.patch(WIDGET, "w", {"spec": {"a": 2}}, namespace, manager="tests")
    await relabel("yes")
    events = await (seen or take(cluster.watch(WIDGET, version, namespace, "see=yes"), 4))
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    assert events[2].object["metadata"]["labels"] == {"see": "yes"}
    versions = [int(version_of(event.object)) for event in events]
    assert versions == sorted(set(versions))


async def test_events_come_in_order_and_without_gaps(cluster: Cluster, namespace: str) -> None:
    version = (await cluster.list(WIDGET, namespace)).resource_version
    watch = asyncio.create_task(take(cluster.watch(WIDGET, version, namespace), 60))
    await asyncio.sleep(0)
    await asyncio.gather(*(cluster.create(WIDGET, widget(namespace, f"w{n}"), manager="tests") for n in range(30)))
    await asyncio.gather(
        *(cluster.patch(WIDGET, f"w{n}", {"spec": {"n": n}}, namespace, manager="tests") for n in range(30))
    )
    events = await watch
    versions = [int(version_of(event.object)) for event in events]
    assert versions == sorted(set(versions))
    assert [event.type for event in events] == ["ADDED"] * 30 + ["MODIFIED"] * 30


async def test_a_watch_with_a_bad_selector_is_refused(cluster: Cluster, namespace: str) -> None:
    version = (await cluster.list(WIDGET, namespace)).resource_version
    with pytest.raises(Invalid):
        await anext(cluster.watch(WIDGET, version, namespace, "a=b=c"))
