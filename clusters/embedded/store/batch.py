"""Writes that are decided together and committed together: the optimistic half of the store. No input or output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Key, Kind, Object
from clusters.base.sizes import format_size
from clusters.embedded.store.database import Row
from clusters.embedded.store.history import Change

LARGEST_OBJECT = 1_572_864
"""Bytes of one object as JSON: etcd's default request limit (1.5 MiB)."""


@dataclass(frozen=True, slots=True)
class Remove:
    """What a mutation returns to remove the object; `last` is its last state."""

    last: Object


Mutate = Callable[[Object | None], Object | Remove]
"""From the present object to the wished one, which the store keeps: plain JSON that nobody else changes.

Returning the very object that was given writes nothing.
"""


class Write(msgspec.Struct):
    """One mutation, and what it came to; its caller hears of it after the commit, when a future says who that is."""

    kind: Kind
    key: Key
    mutate: Mutate
    dry_run: bool
    future: asyncio.Future[Object] | None = None
    result: Object | None = None
    error: Exception | None = None

    def answer(self) -> None:
        """Tell the caller, unless it was cancelled (the write stands all the same)."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        elif self.result is not None:
            self.future.set_result(self.result)

    def outcome(self) -> Object | Exception:
        """What the caller is told."""
        if self.error is not None:
            return self.error
        return self.result if self.result is not None else RuntimeError("the write was not decided")


@dataclass(slots=True)
class Batch:
    """The state that comes of the writes so far: `version`, and every object that they changed."""

    version: int
    changes: list[tuple[Change, bytes]] = field(default_factory=list)
    _heads: dict[tuple[str, Key], Object | None] = field(default_factory=dict)

    def decide(self, write: Write, committed: Object | None) -> None:
        """Run one mutation on the state after all earlier ones; `committed` counts where the batch has no newer one."""
        place = (write.kind.resource, write.key)
        before = self._heads.get(place, committed)
        try:
            self._run(write, place, before)
        except Exception as error:  # whatever a mutation raises is its caller's
            write.error = error

    def rows(self) -> list[Row]:
        """The last state of each object that the batch changed."""
        rows = [
            Row(change.kind.resource, change.key, None if change.removed else encoded)
            for change, encoded in self.changes
        ]
        if len(self._heads) == len(rows):
            return rows
        return list({(row.resource, row.key): row for row in rows}.values())

    def _run(self, write: Write, place: tuple[str, Key], before: Object | None) -> None:
        wanted = write.mutate(before)
        removed = isinstance(wanted, Remove)
        after = wanted.last if isinstance(wanted, Remove) else wanted
        if after is before and not removed:
            write.result = before
            return
        version = self.version + (0 if write.dry_run else 1)
        if before is None:  # it is new and nobody else's
            after["metadata"]["resourceVersion"] = str(version)
        else:
            after = {**after, "metadata": {**after["metadata"], "resourceVersion": str(version)}}
        encoded = _encode(write, after)
        write.result = after
        if not write.dry_run:
            self.version = version
            self._heads[place] = None if removed else after
            self.changes.append((Change(version, write.kind, write.key, before, after, removed), encoded))


def _encode(write: Write, obj: Object) -> bytes:
    try:
        encoded = msgspec.json.encode(obj)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(write, f"it is no JSON: {error}") from error
    if len(encoded) > LARGEST_OBJECT:
        raise _invalid(write, f"it has {format_size(len(encoded))}: at most {format_size(LARGEST_OBJECT)} are allowed")
    return encoded


def _invalid(write: Write, fault: str) -> Invalid:
    return Invalid(f"{write.kind} {str(write.key)!r}", [FieldError("", fault)])
