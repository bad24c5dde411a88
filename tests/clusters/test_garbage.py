"""The controllers inside the embedded cluster: garbage collector, namespaces, TTL of Events."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from clusters.base.errors import NotFound
from clusters.base.objects import EVENT, MODEL, NAMESPACE, SECRET, Kind, Object, is_deleting, name_of, owner_reference
from clusters.base.objects import timestamp as written
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from clusters.embedded.workloads import event_ttl
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.wait import eventually

GADGET = Kind("example.org", "v2", "Gadget", "gadgets")


def model(name: str, **metadata: object) -> Object:
    """Return a Model."""
    return {"metadata": {"name": name, "namespace": "ns", **metadata}}


async def names(cluster: EmbeddedCluster, kind: Kind = MODEL, namespace: str | None = None) -> list[str]:
    """Return the names of all objects of a kind."""
    return [name_of(obj) for obj in (await cluster.list(kind, namespace)).items]


@pytest.mark.parametrize("kind", [MODEL, GADGET], ids=str)
async def test_orphans_of_a_crash_are_deleted_at_the_next_start(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "store.db"
    store = Store.open(path)
    cluster = EmbeddedCluster(store, clock=SteppedClock())  # its controllers do not run
    owner = await cluster.create(MODEL, model("owner"), manager="t")
    await cluster.create(kind, model("child", ownerReferences=[owner_reference(MODEL, owner)]), manager="t")
    await cluster.create(kind, model("stranger"), manager="t")
    await cluster.delete(MODEL, "owner", "ns")
    assert await names(cluster, kind) == ["child", "stranger"]
    await store.close()
    async with embedded_cluster(path) as again:

        async def only_the_stranger() -> bool:
            return await names(again, kind) == ["stranger"]

        await eventually(only_the_stranger)


async def test_a_thousand_dependents_are_deleted_quickly(cluster: EmbeddedCluster) -> None:
    owner = await cluster.create(MODEL, model("owner"), manager="t")
    references = [owner_reference(MODEL, owner)]
    await asyncio.gather(
        *(cluster.create(SECRET, model(f"c{n}", ownerReferences=references), manager="t") for n in range(1000))
    )
    started = time.monotonic()
    await cluster.delete(MODEL, "owner", "ns")

    async def all_gone() -> bool:
        return not await names(cluster, SECRET)

    await eventually(all_gone)
    assert time.monotonic() - started < 2


async def test_a_new_owner_with_the_same_name_does_not_adopt(cluster: EmbeddedCluster) -> None:
    owner = await cluster.create(MODEL, model("owner"), manager="t")
    await cluster.create(SECRET, model("child", ownerReferences=[owner_reference(MODEL, owner)]), manager="t")
    await cluster.delete(MODEL, "owner", "ns")
    await cluster.create(MODEL, model("owner"), manager="t")

    async def child_gone() -> bool:
        return not await names(cluster, SECRET)

    await eventually(child_gone)


async def test_a_dependent_without_its_owner_reference_is_kept(cluster: EmbeddedCluster) -> None:
    owner = await cluster.create(MODEL, model("owner"), manager="t")
    references = [owner_reference(MODEL, owner)]
    for name in ("freed", "marker"):
        await cluster.create(SECRET, model(name, ownerReferences=references), manager="t")
    await cluster.patch(SECRET, "freed", {"metadata": {"ownerReferences": None}}, "ns", manager="t")
    await cluster.delete(MODEL, "owner", "ns")

    async def marker_gone() -> bool:
        return await names(cluster, SECRET) == ["freed"]

    await eventually(marker_gone)


async def test_namespaces_are_created_on_first_use_and_can_be_labelled(cluster: EmbeddedCluster) -> None:
    await asyncio.gather(*(cluster.create(MODEL, model(f"m{n}"), manager="t") for n in range(5)))
    assert await names(cluster, NAMESPACE) == ["ns"]
    labelled: Object = {"metadata": {"name": "ns", "labels": {"team": "x"}}}
    await cluster.apply(NAMESPACE, labelled, manager="person")
    again = await cluster.apply(NAMESPACE, {"metadata": {"name": "ns"}}, manager="person")
    assert again["metadata"]["finalizers"]
    assert again["status"] == {"phase": "Active"}


async def test_a_dry_run_creates_no_namespace(cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, model("a"), manager="t", dry_run=True)
    await cluster.apply(MODEL, model("a"), manager="t", dry_run=True)
    assert await names(cluster, NAMESPACE) == []


async def test_a_namespace_is_deleted_after_its_contents(cluster: EmbeddedCluster) -> None:
    await cluster.create(MODEL, model("quick"), manager="t")
    await cluster.create(MODEL, model("slow", finalizers=["example.org/hold"]), manager="t")
    elsewhere = model("elsewhere") | {"metadata": {"name": "elsewhere", "namespace": "other"}}
    await cluster.create(MODEL, elsewhere, manager="t")
    await cluster.delete(NAMESPACE, "ns")
    assert (await cluster.get(NAMESPACE, "ns"))["status"]["phase"] == "Terminating"
    with pytest.raises(NotFound, match="being deleted"):
        await cluster.create(MODEL, model("late"), manager="t")
    with pytest.raises(NotFound, match="being deleted"):
        await cluster.apply(MODEL, model("late"), manager="t")

    async def slow_is_deleting() -> bool:
        return await names(cluster) == ["slow", "elsewhere"] and is_deleting(await cluster.get(MODEL, "slow", "ns"))

    async def namespace_gone() -> bool:
        return await names(cluster, NAMESPACE) == ["other"]

    await eventually(slow_is_deleting)
    await cluster.patch(MODEL, "slow", {"metadata": {"finalizers": None}}, "ns", manager="t")
    await eventually(namespace_gone)
    await cluster.create(MODEL, model("again"), manager="t")
    assert await names(cluster, NAMESPACE) == ["ns", "other"]


async def test_an_interrupted_deletion_of_a_namespace_continues_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store.open(path)
    cluster = EmbeddedCluster(store, clock=SteppedClock())
    await cluster.create(MODEL, model("a"), manager="t")
    await cluster.delete(NAMESPACE, "ns")
    await store.close()
    async with embedded_cluster(path) as again:

        async def all_gone() -> bool:
            return not await names(again) and not await names(again, NAMESPACE)

        await eventually(all_gone)


async def test_events_expire_an_hour_after_their_last_occurrence(tmp_path: Path) -> None:
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "store.db", clock=clock) as cluster:
        for name, minutes in (("old", 0), ("renewed", 30)):
            seen = written(clock.now() + timedelta(minutes=minutes))
            await cluster.create(EVENT, model(name) | {"lastTimestamp": seen}, manager="t")
        clock.step(3541)
        await asyncio.sleep(0)
        assert await names(cluster, EVENT) == ["old", "renewed"]
        clock.step(60)

        async def only_the_renewed() -> bool:
            clock.step(0)
            return await names(cluster, EVENT) == ["renewed"]

        await eventually(only_the_renewed)


async def test_a_burst_of_events_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_ttl, "MAX_EVENTS", 10)
    monkeypatch.setattr(event_ttl, "SLACK", 5)
    async with embedded_cluster(tmp_path / "store.db") as cluster:
        for n in range(16):
            seen = f"2026-01-01T00:00:{n:02}Z"
            await cluster.create(EVENT, model(f"e{n:02}") | {"lastTimestamp": _recent(seen)}, manager="t")

        async def only_the_latest() -> bool:
            return await names(cluster, EVENT) == [f"e{n:02}" for n in range(6, 16)]

        await eventually(only_the_latest)


async def test_an_event_with_an_invalid_time_has_the_age_of_its_object(cluster: EmbeddedCluster) -> None:
    await cluster.create(EVENT, model("odd") | {"lastTimestamp": "yesterday"}, manager="t")
    assert await names(cluster, EVENT) == ["odd"]


def _recent(text: str) -> str:
    """Return the same time tomorrow, so that the Event does not expire by age."""
    now = time.gmtime(time.time() + 86_400)
    return f"{now.tm_year}-{now.tm_mon:02}-{now.tm_mday:02}{text[10:]}"
