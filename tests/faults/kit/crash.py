"""A store's file that kills its process at a chosen write, and keeps a transcript of all that were committed.

The countdown lies in a small file that both processes map: the test arms it while the platform is at rest, and the
platform counts down with each transaction. It is at 0 after the kill, so that the next platform lives.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clusters.embedded.store.database import Database, Row

When = Literal["before", "after"]
"""Of the n-th write. `before`: all that was done since the write before it is done, and nothing tells of it. `after`:
it is on the disk, and neither who asked for it nor any watcher has heard."""

WHENS: tuple[When, ...] = ("before", "after")
FORMAT = struct.Struct("=qq")  # writes that are left, index of `When`
UNARMED = 0
FOREVER = 1 << 40
"""Writes: a countdown that counts and never ends."""


class Countdown:
    """Writes until the kill, shared between processes."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it: unarmed."""
        if not path.exists():
            path.write_bytes(FORMAT.pack(UNARMED, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FORMAT.size)

    def arm(self, write: int, when: When = "after") -> None:
        """Kill who counts down at that write, 1 being the next one."""
        self._set(write, WHENS.index(when))

    def disarm(self) -> None:
        """Kill nobody."""
        self._set(UNARMED, 0)

    @property
    def left(self) -> int:
        """Writes until the kill; 0 when it is not armed, or has killed."""
        return int(FORMAT.unpack(self._map[:])[0])

    def reach(self, when: When) -> None:
        """Called `before` and `after` each write by who counts down; kills this process where that is due."""
        left, index = FORMAT.unpack(self._map[:])
        due = left == 1 and WHENS[index] == when
        if left > 0 and (due or when == "after"):
            self._set(left - 1, index)
        if due:
            os.kill(os.getpid(), signal.SIGKILL)

    def _set(self, left: int, index: int) -> None:
        self._map[:] = FORMAT.pack(left, index)


@dataclass(frozen=True, slots=True)
class Written:
    """One object as a transaction left it: None where it was removed. `resource` is `plural.group`."""

    transaction: int
    resource: str
    name: str
    value: dict[str, Any] | None


class CrashingDatabase(Database):
    """A database that tells each transaction to a transcript and a countdown."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        super().__init__(path, connection)
        folder = path.parent.parent
        self._countdown = Countdown(countdown_of(folder))
        self._transcript = os.open(transcript_of(folder), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, rows: Sequence[Row], version: int) -> None:
        """Write all. Does not return where the countdown ends."""
        self._countdown.reach("before")
        super().write(rows, version)
        told = [[row.resource, str(row.key), json.loads(row.value) if row.value is not None else None] for row in rows]
        os.write(self._transcript, json.dumps(told).encode() + b"\n")
        self._countdown.reach("after")

    def close(self) -> None:
        """Close both files."""
        super().close()
        os.close(self._transcript)


def countdown_of(folder: Path) -> Path:
    """The countdown of the platform whose state folder lies in `folder`."""
    return folder / "countdown"


def transcript_of(folder: Path) -> Path:
    """Its transcript: a line of JSON for each transaction."""
    return folder / "transcript"


def read_transcript(folder: Path, start: int = 0) -> Iterator[Written]:
    """What was committed, in order, from byte `start` of the transcript."""
    with transcript_of(folder).open("rb") as file:
        file.seek(start)
        for number, line in enumerate(file):
            for resource, name, value in json.loads(line):
                yield Written(number, resource, name, value)
