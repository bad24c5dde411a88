"""The watch history of the store: the last changes, encoded, in bounded memory.

Live watchers get the shared values; only a watch that starts in the past reads from here, so the history keeps JSON
(a fifth of the parsed value's memory).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from clusters.objects import Key, Kind, Object, key_of, labels_of

LONGEST = 4096
"""Changes kept: some minutes of a busy platform; a watch that was away longer lists again."""
LARGEST = 8 * 1024 * 1024
"""Bytes kept."""


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
        after = msgspec.json.decode(self.after)
        before = msgspec.json.decode(self.before) if self.before is not None else after
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
        before = _exact(msgspec.json.encode(change.before)) if relabelled else None
        past = _Past(change.version, change.kind, change.before is None, change.removed, _exact(encoded), before)
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


def _exact(encoded: bytes) -> bytes:
    """The same in its own size: msgspec leaves room behind what it encodes, half as much again."""
    return bytes(memoryview(encoded))
