"""The watch history of the store: the last changes, compressed, in bounded memory.

Live watchers get the shared values; only a watch that starts in the past reads from here, so the history keeps
compressed JSON: a fifth of the JSON, which is a fifth of the parsed value, for 0.1 ms a change.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator

import msgspec

from clusters.objects import Key, Kind, Object, key_of, labels_of

LONGEST = 4096
"""Changes kept: some minutes of a busy platform; a watch that was away longer lists again."""
LARGEST = 4 * 1024 * 1024
"""Bytes kept."""
_QUICKLY = 1  # level of zlib: objects of Kubernetes repeat themselves, and more effort gains little


class Change(msgspec.Struct, frozen=True, gc=False):
    """One committed write; `before` is None when added, `after` the last state with the new version when removed."""

    version: int
    kind: Kind
    key: Key
    before: Object | None
    after: Object
    removed: bool


class _Past(msgspec.Struct, frozen=True, gc=False):
    version: int
    kind: Kind
    added: bool
    removed: bool
    after: bytes
    before: bytes | None  # only when the labels changed: a selector needs both

    @property
    def size(self) -> int:
        return len(self.after) + len(self.before or b"")

    def decode(self) -> Change:
        after = _unpacked(self.after)
        before = _unpacked(self.before) if self.before is not None else after
        return Change(self.version, self.kind, key_of(after), None if self.added else before, after, self.removed)


class History:
    """The last changes; everything after `floor` is there."""

    def __init__(self, floor: int, longest: int = LONGEST, largest: int = LARGEST) -> None:
        self.floor = floor
        self._longest = longest
        self._largest = largest
        self._size = 0
        self._past: deque[_Past] = deque()

    def append(self, change: Change, encoded: bytes) -> None:
        """Remember `change`, whose `after` is `encoded`, and forget the oldest ones beyond the bounds."""
        relabelled = change.before is not None and labels_of(change.before) != labels_of(change.after)
        before = _packed(msgspec.json.encode(change.before)) if relabelled else None
        past = _Past(change.version, change.kind, change.before is None, change.removed, _packed(encoded), before)
        self._past.append(past)
        self._size += past.size
        while len(self._past) > self._longest or self._size > self._largest:
            oldest = self._past.popleft()
            self._size -= oldest.size
            self.floor = oldest.version

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """The changes of `kind` after `version`, which must not be below `floor`."""
        for past in self._past:
            if past.version > version and past.kind == kind:
                yield past.decode()


def _packed(encoded: bytes) -> bytes:
    return zlib.compress(encoded, _QUICKLY)


def _unpacked(packed: bytes) -> Object:
    found: Object = msgspec.json.decode(zlib.decompress(packed))
    return found
