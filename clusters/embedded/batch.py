"""Writes that are decided together and committed together: the optimistic half of the store. No input or output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from clusters.embedded.database import Row
from clusters.embedded.history import Change
from clusters.errors import FieldError, Invalid
from clusters.objects import Key, Kind, Object

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


@dataclass(slots=True)
class Write:
    """One caller's mutation, and what it came to; the caller hears of it after the commit."""

    kind: Kind
    key: Key
    mutate: Mutate
    dry_run: bool
    future: asyncio.Future[Object]
    result: Object | None = None
    error: Exception | None = None

    def answer(self) -> None:
        """Tell the caller, unless it was cancelled (the write stands all the same)."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        elif self.result is not None:
            self.future.set_result(self.result)


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
            self._run(write, before)
        except Exception as error:  # whatever a mutation raises is its caller's
            write.error = error

    def rows(self) -> list[Row]:
        """The last state of each object that the batch changed."""
        last = {
            (change.kind.resource, change.key): None if change.removed else encoded for change, encoded in self.changes
        }
        return [Row(resource, key, value) for (resource, key), value in last.items()]

    def _run(self, write: Write, before: Object | None) -> None:
        wanted = write.mutate(before)
        removed = isinstance(wanted, Remove)
        after = wanted.last if isinstance(wanted, Remove) else wanted
        if after is before and not removed:
            write.result = before
            return
        version = self.version + (0 if write.dry_run else 1)
        after = {**after, "metadata": {**after["metadata"], "resourceVersion": str(version)}}
        encoded = _encode(write, after)
        write.result = after
        if not write.dry_run:
            self.version = version
            self._heads[write.kind.resource, write.key] = None if removed else after
            self.changes.append((Change(version, write.kind, before, after, removed), encoded))


def _encode(write: Write, obj: Object) -> bytes:
    what = f"{write.kind} {str(write.key)!r}"
    try:
        encoded = msgspec.json.encode(obj)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(what, [FieldError("", f"it is no JSON: {error}")]) from error
    if len(encoded) > LARGEST_OBJECT:
        raise Invalid(what, [FieldError("", f"it has {len(encoded)} bytes: at most {LARGEST_OBJECT} are allowed")])
    return encoded
