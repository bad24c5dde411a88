"""The watch history of the store: the last changes, compressed, in bounded memory.

Live watchers get the shared values; only a watch that starts in the past reads from here, so the history keeps JSON,
compressed in blocks: objects of Kubernetes repeat themselves and each other. A block costs a third of the time and a
quarter of the room that its changes would, one by one.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

import msgspec

from clusters.base.objects import Key, Kind, Object, key_of, labels_of

LONGEST = 4096
"""Changes kept at least, where `LARGEST` allows: some minutes of a busy platform; a watch that was away longer lists
again."""
LARGEST = 4 * 1024 * 1024
"""Bytes kept, compressed; and one block more that is not yet."""
BLOCK = 64 * 1024
"""Bytes of JSON that are compressed together, in half a millisecond."""
_QUICKLY = 1  # level of zlib: more effort gains little


class Change(msgspec.Struct, frozen=True, gc=False):
    """One committed write; `before` is None when added, `after` the last state with the new version when removed."""

    version: int
    kind: Kind
    key: Key
    before: Object | None
    after: Object
    removed: bool


class _Mark(msgspec.Struct, frozen=True, gc=False):
    """A change in a block, in which the JSON of `after` and `before` follow each other; both sizes are in bytes."""

    version: int
    kind: Kind
    added: bool
    removed: bool
    after: int
    before: int  # 0: its labels are those of `after`; a selector needs both only when they changed

    def decode(self, encoded: memoryview) -> Change:
        after: Object = msgspec.json.decode(encoded[: self.after])
        before: Object = msgspec.json.decode(encoded[self.after :]) if self.before else after
        return Change(self.version, self.kind, key_of(after), None if self.added else before, after, self.removed)


class _Block:
    """Changes that follow each other; `encoded` is their JSON, compressed once the block is closed."""

    def __init__(self) -> None:
        self.marks: list[_Mark] = []
        self.encoded: bytes | bytearray = bytearray()
        self._closed = False

    def add(self, mark: _Mark, encoded: bytes) -> None:
        self.marks.append(mark)
        self.encoded += encoded

    def close(self) -> None:
        self.encoded = zlib.compress(self.encoded, _QUICKLY)
        self._closed = True

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        wanted = {mark.version for mark in self.marks if mark.version > version and mark.kind == kind}
        if not wanted:
            return
        encoded = memoryview(zlib.decompress(self.encoded) if self._closed else bytes(self.encoded))
        at = 0
        for mark in self.marks:
            end = at + mark.after + mark.before
            if mark.version in wanted:
                yield mark.decode(encoded[at:end])
            at = end


class History:
    """The last changes; everything after `floor` is there."""

    def __init__(self, floor: int, longest: int = LONGEST, largest: int = LARGEST, block: int = BLOCK) -> None:
        self.floor = floor
        self._longest = longest
        self._largest = largest
        self._block = block
        self._number = 0
        self._size = 0
        self._closed: deque[_Block] = deque()
        self._open = _Block()

    def append(self, change: Change, encoded: bytes) -> None:
        """Remember `change`, whose `after` is `encoded`, and forget the oldest blocks beyond the bounds."""
        relabelled = change.before is not None and labels_of(change.before) != labels_of(change.after)
        before = msgspec.json.encode(change.before) if relabelled else b""
        added = change.before is None
        self._open.add(
            _Mark(change.version, change.kind, added, change.removed, len(encoded), len(before)), encoded + before
        )
        self._number += 1
        if len(self._open.encoded) >= self._block:
            self._close()

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """The changes of `kind` after `version`, which must not be below `floor`."""
        for block in (*self._closed, self._open):
            yield from block.since(kind, version)

    def _close(self) -> None:
        self._open.close()
        self._size += len(self._open.encoded)
        self._closed.append(self._open)
        self._open = _Block()
        while self._closed and self._too_much(len(self._closed[0].marks)):
            oldest = self._closed.popleft()
            self._number -= len(oldest.marks)
            self._size -= len(oldest.encoded)
            self.floor = oldest.marks[-1].version

    def _too_much(self, oldest: int) -> bool:
        return self._size > self._largest or self._number - oldest >= self._longest
