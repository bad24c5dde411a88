"""The store: writes are durable before they are visible, and watchers are bounded."""

from __future__ import annotations

import asyncio
import secrets
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from clusters.base.errors import Gone, Invalid, Unavailable
from clusters.base.objects import MODEL, POD, SECRET, Key, Object, name_of, version_of
from clusters.base.selectors import Selector
from clusters.embedded.store import history, watch
from clusters.embedded.store.batch import Mutate, Remove
from clusters.embedded.store.history import ObjectChange
from clusters.embedded.store.store import LARGEST_BATCH, Store
from clusters.embedded.store.watch import Filter
from tests.support.small_disk import full_disk

EVERYTHING = Filter(None, Selector())


def put(name: str, content: object) -> Mutate:
    """Return a mutation that sets this content."""
    return lambda before: {"metadata": {"name": name, "namespace": "ns"}, "spec": content}


def key(name: str) -> Key:
    """Return the key of an object in the tests' namespace."""
    return Key("ns", name)


async def write(store: Store, name: str, content: object = 0) -> Object:
    """Store one object."""
    return await store.update(MODEL, key(name), put(name, content))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An open store."""
    store = Store.open(tmp_path / "store.db")
    yield store
    await store.close()


async def test_what_was_answered_is_there_after_reopening(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    kept = await write(store, "kept", {"text": "ä", "number": 1.5, "nothing": None, "list": [1, {"a": True}]})
    await write(store, "gone")
    await store.update(MODEL, key("gone"), lambda before: Remove(before or {}))
    version = store.version
    await store.close()

    again = Store.open(tmp_path / "store.db")
    assert again.get(MODEL, key("kept")) == kept
    assert again.get(MODEL, key("gone")) is None
    assert again.version == version
    await again.close()


async def test_versions_go_on_after_reopening_even_when_the_last_write_was_a_removal(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    await write(store, "a")
    removed = await store.update(MODEL, key("a"), lambda before: Remove(before or {}))
    await store.close()
    again = Store.open(tmp_path / "store.db")
    assert int(version_of(await write(again, "b"))) > int(version_of(removed))
    await again.close()


async def test_nothing_is_seen_before_it_is_on_disk(store: Store) -> None:
    pending = asyncio.create_task(write(store, "a"))
    await asyncio.sleep(0)
    assert store.get(MODEL, key("a")) is None
    await pending
    assert store.get(MODEL, key("a")) is not None


async def test_concurrent_writes_see_each_other_in_order(store: Store) -> None:
    def increment(before: Object | None) -> Object:
        return {"metadata": {"name": "n", "namespace": "ns"}, "spec": (before["spec"] if before else 0) + 1}

    answers = await asyncio.gather(*(store.update(MODEL, key("n"), increment) for _ in range(3 * LARGEST_BATCH)))
    assert [answer["spec"] for answer in answers] == list(range(1, 3 * LARGEST_BATCH + 1))
    versions = [int(version_of(answer)) for answer in answers]
    assert versions == list(range(versions[0], versions[0] + len(versions)))


async def test_a_failed_mutation_concerns_its_caller_alone(store: Store) -> None:
    def fail(before: Object | None) -> Object:
        raise LookupError("mine")

    good, bad, other = await asyncio.gather(
        write(store, "a"), store.update(MODEL, key("b"), fail), write(store, "c"), return_exceptions=True
    )
    assert isinstance(good, dict) and isinstance(other, dict)
    assert isinstance(bad, LookupError)


async def test_an_unchanged_object_is_not_written(store: Store) -> None:
    made = await write(store, "a")
    version = store.version
    assert await store.update(MODEL, key("a"), lambda before: before or {}) is made
    assert store.version == version


async def test_a_dry_run_sees_pending_writes_and_leaves_none(store: Store) -> None:
    _, shown = await asyncio.gather(
        write(store, "a", 1),
        store.update(MODEL, key("a"), lambda before: {**(before or {}), "seen": True}, dry_run=True),
    )
    assert shown["spec"] == 1 and shown["seen"]
    assert "seen" not in (store.get(MODEL, key("a")) or {})


async def test_a_cancelled_caller_does_not_undo_its_write(store: Store) -> None:
    task = asyncio.create_task(write(store, "a"))
    await asyncio.sleep(0)
    task.cancel()
    await write(store, "b")
    assert store.get(MODEL, key("a")) is not None


@pytest.mark.fault("E10")
async def test_a_full_disk_refuses_writes_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store.open(path)
    before = await write(store, "before")
    version = store.version
    listener = store.watch(MODEL, version, EVERYTHING)
    assert await store.write_error() == ""
    with full_disk(path):
        outcomes = await asyncio.gather(
            *(write(store, f"lost-{n}", "x" * 10_000) for n in range(3)), return_exceptions=True
        )
        assert "cannot write to the state file" in await store.write_error()
    assert await store.write_error() == "", "nobody has written since"
    assert all(isinstance(outcome, Unavailable) and outcome.retry_after for outcome in outcomes)
    assert store.version == version
    assert list(store.of_kind(MODEL).values()) == [before]

    after = await write(store, "after")
    assert int(version_of(after)) == version + 1
    assert name_of((await anext(listener)).object) == "after"
    await store.close()
    again = Store.open(path)
    assert {key.name for key in again.of_kind(MODEL)} == {"before", "after"}
    await again.close()


async def test_too_large_an_object_is_refused(store: Store) -> None:
    with pytest.raises(Invalid, match=r"it has 2\.0 MiB: at most 1536 KiB are allowed"):
        await write(store, "a", "x" * 2_000_000)
    assert store.get(MODEL, key("a")) is None


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    waiting = store.watch(MODEL, store.version, EVERYTHING)
    unfinished = asyncio.create_task(write(store, "a"))
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    assert name_of(await unfinished) == "a"
    assert name_of((await anext(waiting)).object) == "a"
    with pytest.raises(Unavailable):
        await anext(waiting)
    with pytest.raises(Unavailable, match="stopped"):
        await write(store, "b")
    assert "closed" in await store.write_error()


async def test_a_write_that_was_cut_off_closes_the_store(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    pending = asyncio.create_task(write(store, "a"))
    await asyncio.sleep(0)
    (committer,) = [task for task in asyncio.all_tasks() if task.get_name() == "store commit"]
    await asyncio.sleep(0)
    committer.cancel()
    with pytest.raises(Unavailable):
        await pending
    with pytest.raises(Unavailable):  # memory and disk may differ now
        await write(store, "b")
    await store.close()
    await Store.open(tmp_path / "store.db").close()


async def test_a_failing_observer_does_not_fail_the_write(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def fail(change: ObjectChange) -> None:
        raise LookupError("broken observer")

    store.subscribe(fail)
    assert await write(store, "a")
    assert "broken observer" in caplog.text


async def test_observers_hear_every_change_in_order(store: Store) -> None:
    heard: list[tuple[bool, bool]] = []
    store.subscribe(lambda change: heard.append((change.before is None, change.removed)))
    await asyncio.gather(
        write(store, "a", 1), write(store, "a", 2), store.update(MODEL, key("a"), lambda before: Remove(before or {}))
    )
    assert heard == [(True, False), (False, False), (False, True)]


async def test_readers_and_watchers_share_one_value(store: Store) -> None:
    start = store.version
    live = store.watch(MODEL, start, EVERYTHING)
    made = await write(store, "a")
    assert store.get(MODEL, key("a")) is made
    assert (await anext(live)).object is made
    assert (await anext(store.watch(MODEL, start, EVERYTHING))).object is made


async def test_a_watch_from_nowhere_begins_with_what_is_there(store: Store) -> None:
    await write(store, "a")
    watcher = store.watch(MODEL, None, EVERYTHING)
    await write(store, "b")
    assert [name_of((await anext(watcher)).object) for _ in range(2)] == ["a", "b"]


async def test_history_is_gone_after_reopening(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    early = store.version
    await write(store, "a")
    late = store.version
    await store.close()
    again = Store.open(tmp_path / "store.db")
    with pytest.raises(Gone):
        await anext(again.watch(MODEL, early, EVERYTHING))
    resumed = again.watch(MODEL, late, EVERYTHING)
    await write(again, "b")
    assert name_of((await anext(resumed)).object) == "b"
    await again.close()


async def test_a_version_of_the_future_is_gone(store: Store) -> None:
    with pytest.raises(Gone):
        await anext(store.watch(MODEL, store.version + 1, EVERYTHING))


A = Key("", "a")
NAMED = {"metadata": {"name": "a"}}
SMALL = msgspec.json.encode(NAMED)


async def test_history_is_bounded_in_number_and_bytes() -> None:
    kept = history.History(0, longest=3, largest=1000, block=2 * len(SMALL))
    for version in range(1, 6):
        kept.append(change(version), SMALL)
    assert kept.floor == 0
    kept.append(change(6), SMALL)
    assert kept.floor == 2  # a block of two at a time: three at least are there
    assert [one.version for one in kept.since(MODEL, 2)] == [3, 4, 5, 6]
    large = msgspec.json.encode({"metadata": {"name": "a"}, "spec": secrets.token_hex(1000)})
    kept.append(change(7), large)
    assert kept.floor == 7
    assert list(kept.since(MODEL, 7)) == []


@pytest.mark.parametrize("block", [1, 100, history.BLOCK])
async def test_history_tells_what_is_after_a_version_whatever_the_blocks(block: int) -> None:
    labelled = {"metadata": {"name": "a", "labels": {"team": "red"}}}
    changes = [
        change(1),
        ObjectChange(2, POD, A, None, NAMED, removed=False),
        ObjectChange(3, MODEL, A, NAMED, labelled, removed=False),
        ObjectChange(4, MODEL, A, labelled, labelled, removed=True),
        change(5),
    ]
    kept = history.History(0, block=block)
    for one in changes:
        kept.append(one, msgspec.json.encode(one.after))
    assert list(kept.since(MODEL, 0)) == [changes[0], *changes[2:]]
    assert list(kept.since(POD, 1)) == [changes[1]]
    assert list(kept.since(MODEL, 3)) == changes[3:]


def change(version: int) -> ObjectChange:
    """Return the creation of a Model."""
    return ObjectChange(version, MODEL, A, None, NAMED, removed=False)


async def test_history_takes_a_fraction_of_what_was_written() -> None:
    content = {"metadata": {"name": "a"}, "spec": ["x" * 100] * 40}
    kept = history.History(0)
    tracemalloc.start()
    try:
        for version in range(1, 101):
            kept.append(ObjectChange(version, MODEL, A, None, content, removed=False), msgspec.json.encode(content))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100 * len(msgspec.json.encode(content)) / 5
    assert [change.after for change in kept.since(MODEL, 98)] == [content, content]


async def test_a_slow_watcher_is_told_gone_and_a_quick_one_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LONGEST_BACKLOG", 10)
    slow, quick = (store.watch(MODEL, store.version, EVERYTHING) for _ in range(2))
    for n in range(12):
        await write(store, f"w{n}")
        await anext(quick)
    with pytest.raises(Gone, match="behind"):
        await anext(slow)


async def test_a_watcher_that_one_commit_is_too_much_for_hears_nothing_but_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LONGEST_BACKLOG", 10)
    slow = store.watch(MODEL, store.version, EVERYTHING)
    await asyncio.gather(*(write(store, f"w{n}") for n in range(16)))
    with pytest.raises(Gone, match="behind"):
        await anext(slow)


async def test_a_watcher_of_a_quiet_kind_hears_bookmarks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = store.watch(SECRET, store.version, EVERYTHING)
    await asyncio.gather(*(write(store, "a", n) for n in range(2 * watch.BOOKMARK_EVERY)))
    event = await anext(quiet)
    assert event.type == "BOOKMARK"
    assert int(version_of(event.object)) >= watch.BOOKMARK_EVERY


async def test_a_closed_watch_ends(store: Store) -> None:
    watcher = store.watch(MODEL, store.version, EVERYTHING)
    ended = asyncio.create_task(_all_of(watcher))
    await asyncio.sleep(0)
    await watcher.aclose()
    assert await ended == 0


async def _all_of(watcher: watch.Watch) -> int:
    return len([event async for event in watcher])


async def test_a_thousand_creations_at_once_are_all_stored(store: Store) -> None:
    await asyncio.gather(*(write(store, f"m{n}", {"n": n}) for n in range(1000)))
    assert len(store.of_kind(MODEL)) == 1000


async def test_the_view_of_a_kind_is_live_also_when_it_was_taken_before_the_first_object(store: Store) -> None:
    view = store.of_kind(MODEL)

    await write(store, "a")

    assert len(view) == 1
