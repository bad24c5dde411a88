"""Limit how often an engine's lines are logged: a caller can make it write the same ones with each request. Pure.

A line that names its level (llama.cpp's `0.00.216.015 E …`, vLLM's `ERROR 11-29 …`) is of the kind of its text without
numbers, so a flood of one kind hides no other. All lines without a level, such as the text of a caller's grammar or a
traceback, are of one kind.
"""

from __future__ import annotations

import re
from typing import Final

BURST: Final = 10  # lines of a kind at once
UNMARKED_BURST: Final = 100  # lines without a level at once; a traceback has some 60
PERIOD: Final = 10.0  # s after which a kind may have another tenth of its lines
_SHARE: Final = 10
MOST_KINDS: Final = 256
"""Kinds that are told apart, since the text of a line may quote a caller. Later ones are one kind."""
UNMARKED: Final = ""
_OTHERS: Final = "*"
_LEVEL: Final = re.compile(r"\d[\d.]* [EWIDF] |(?:\(\S+ pid=\d+\) )?(?:CRITICAL|ERROR|WARNING|INFO) ")
_NUMBER: Final = re.compile(r"[0-9][0-9.:a-fx-]*")


class _Kind:
    """The lines of one kind: how many may come at `at` (monotonic seconds), and how many were left out."""

    __slots__ = ("at", "left", "left_out", "most")

    def __init__(self, most: int, now: float) -> None:
        self.most = most
        self.left = float(most)
        self.at = now
        self.left_out = 0


class LineLimit:
    """The limits of all kinds of lines of one engine."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def admit(self, line: str, now: float) -> int | None:
        """Return whether to log a line that came `now` (monotonic seconds): None if not.

        Otherwise return how many lines of its kind were left out before it.
        """
        name = _NUMBER.sub("#", line) if _LEVEL.match(line) else UNMARKED
        if name not in self._kinds and len(self._kinds) >= MOST_KINDS:
            name = _OTHERS
        kind = self._kinds.setdefault(name, _Kind(UNMARKED_BURST if name == UNMARKED else BURST, now))
        kind.left = min(kind.most, kind.left + (now - kind.at) / PERIOD * kind.most / _SHARE)
        kind.at = now
        if kind.left < 1.0:
            kind.left_out += 1
            return None
        kind.left -= 1.0
        before, kind.left_out = kind.left_out, 0
        return before
