"""The watch history of the store: the last changes, compressed, in bounded memory.

Only a watch that starts in the past reads from the history; the others get the objects in memory. So it keeps JSON,
compressed in blocks, because Kubernetes objects are repetitive and similar. A block takes a third of the time and a
quarter of the space of its changes one by one.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

import msgspec

from clusters.base.objects import Key, Kind, Object, key_of, labels_of

LONGEST = 4096
"""Minimum number of changes, unless they exceed `LARGEST`: some minutes of a busy platform. A watch that was
disconnected longer must list again."""
LARGEST = 4 * 1024 * 1024
"""Maximum compressed bytes, without the one block that is not compressed yet."""
BLOCK = 64 * 1024
"""Bytes of JSON that are compressed together, which takes half a millisecond."""
_LEVEL = 1  # of zlib; higher levels save little


class ObjectChange(msgspec.Struct, frozen=True, gc=False):
    """One committed write.

    `before` is None for a new object. For a removed one, `after` is its last state with the new version.
    """

    version: int
    kind: Kind
    key: Key
    before: Object | None
    after: Object
    removed: bool


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A change in a block, which has the JSON of `after` followed by that of `before`.

    Both fields are sizes in bytes.
    """

    version: int
    kind: Kind
    added: bool
    removed: bool
    after: int
    before: int  # 0 if the labels did not change, because only selectors need `before`

    def decode(self, encoded: memoryview) -> ObjectChange:
        after: Object = msgspec.json.decode(encoded[: self.after])
        before: Object = msgspec.json.decode(encoded[self.after :]) if self.before else after
        return ObjectChange(self.version, self.kind, key_of(after), None if self.added else before, after, self.removed)


class _Block:
    """Consecutive changes. `encoded` is their JSON, compressed once the block is closed."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.encoded: bytes | bytearray = bytearray()
        self._closed = False

    def add(self, entry: _Entry, encoded: bytes) -> None:
        self.entries.append(entry)
        self.encoded += encoded

    def close(self) -> None:
        self.encoded = zlib.compress(self.encoded, _LEVEL)
        self._closed = True

    def since(self, kind: Kind, version: int) -> Iterator[ObjectChange]:
        wanted = {entry.version for entry in self.entries if entry.version > version and entry.kind == kind}
        if not wanted:
            return
        encoded = memoryview(zlib.decompress(self.encoded) if self._closed else bytes(self.encoded))
        at = 0
        for entry in self.entries:
            end = at + entry.after + entry.before
            if entry.version in wanted:
                yield entry.decode(encoded[at:end])
            at = end


class History:
    """The last changes: all of those after the version `floor`."""

    def __init__(self, floor: int, longest: int = LONGEST, largest: int = LARGEST, block: int = BLOCK) -> None:
        self.floor = floor
        self._longest = longest
        self._largest = largest
        self._block = block
        self._number = 0
        self._size = 0
        self._closed: deque[_Block] = deque()
        self._open = _Block()

    def append(self, change: ObjectChange, encoded: bytes) -> None:
        """Add `change`, whose `after` is `encoded`, and remove the oldest blocks beyond the limits."""
        relabelled = change.before is not None and labels_of(change.before) != labels_of(change.after)
        before = msgspec.json.encode(change.before) if relabelled else b""
        added = change.before is None
        self._open.add(
            _Entry(change.version, change.kind, added, change.removed, len(encoded), len(before)), encoded + before
        )
        self._number += 1
        if len(self._open.encoded) >= self._block:
            self._close()

    def since(self, kind: Kind, version: int) -> Iterator[ObjectChange]:
        """Yield the changes of `kind` after `version`, which must not be below `floor`."""
        for block in (*self._closed, self._open):
            yield from block.since(kind, version)

    def _close(self) -> None:
        self._open.close()
        self._size += len(self._open.encoded)
        self._closed.append(self._open)
        self._open = _Block()
        while self._closed:
            spare = self._number - len(self._closed[0].entries) >= self._longest
            if not spare and self._size <= self._largest:
                return
            oldest = self._closed.popleft()
            self._number -= len(oldest.entries)
            self._size -= len(oldest.encoded)
            self.floor = oldest.entries[-1].version
