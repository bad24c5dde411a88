"""Decide writes on the state after all earlier ones, and collect them for one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.objects import Key, Kind, Object
from clusters.base.sizes import format_size
from clusters.embedded.store.database import Row
from clusters.embedded.store.history import ObjectChange

LARGEST_OBJECT = 1_572_864
"""Maximum bytes of an object as JSON: etcd's default request limit (1.5 MiB)."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Returned by a mutation to remove the object; `last` is its last state."""

    last: Object


Mutate = Callable[[Object | None], Object | Remove]
"""Maps the present object to the new one, which is plain JSON and is not modified afterwards.

Returning the given object itself writes nothing.
"""


class Write(msgspec.Struct):
    """A mutation and its result. The caller gets the result after the commit, from `future` if there is one."""

    kind: Kind
    key: Key
    mutate: Mutate
    dry_run: bool
    future: asyncio.Future[Object] | None = None
    result: Object | None = None
    error: Exception | None = None

    def resolve(self) -> None:
        """Resolve the future with the result. A cancelled caller does not undo the write."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        elif self.result is not None:
            self.future.set_result(self.result)

    def outcome(self) -> Object | Exception:
        """Return the result or the error."""
        if self.error is not None:
            return self.error
        return self.result if self.result is not None else RuntimeError("the write has no result")


@dataclass(slots=True)
class Batch:
    """The state after the writes so far: `version`, and every object that they changed."""

    version: int
    changes: list[tuple[ObjectChange, bytes]] = field(default_factory=list)
    _latest: dict[tuple[str, Key], Object | None] = field(default_factory=dict)

    def decide(self, write: Write, committed: Object | None) -> None:
        """Run the mutation of `write`. `committed` is the present object unless the batch has a newer one."""
        place = (write.kind.resource, write.key)
        before = self._latest.get(place, committed)
        try:
            self._run(write, place, before)
        except Exception as error:  # errors of a mutation are for its caller
            write.error = error

    def rows(self) -> list[Row]:
        """Return the last state of each object that the batch changed."""
        rows = [
            Row(change.kind.resource, change.key, None if change.removed else encoded)
            for change, encoded in self.changes
        ]
        if len(self._latest) == len(rows):
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
        if before is None:  # a new object, which is not shared yet
            after["metadata"]["resourceVersion"] = str(version)
        else:
            after = {**after, "metadata": {**after["metadata"], "resourceVersion": str(version)}}
        encoded = _encode(write, after)
        write.result = after
        if not write.dry_run:
            self.version = version
            self._latest[place] = None if removed else after
            self.changes.append((ObjectChange(version, write.kind, write.key, before, after, removed), encoded))


def _encode(write: Write, obj: Object) -> bytes:
    try:
        encoded = msgspec.json.encode(obj)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(write, f"it is not JSON: {error}") from error
    if len(encoded) > LARGEST_OBJECT:
        raise _invalid(write, f"it has {format_size(len(encoded))}: at most {format_size(LARGEST_OBJECT)} are allowed")
    return encoded


def _invalid(write: Write, fault: str) -> Invalid:
    return Invalid(f"{write.kind} {str(write.key)!r}", [FieldError("", fault)])
