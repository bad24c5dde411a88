"""Find what was saved: marks of a model's files, their differences, and whether they have settled. Pure but for `scan`.

Files are compared by modification time, size and inode, a few times a second. This sees every kind of save (in place,
by rename, through a link) on every file system, without a limit of watches and without another dependency: inotify
reports nothing on network file systems and on many mounts of containers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from clusters.base.errors import KnodelError

MAX_FILES: Final = 10_000  # as in a model's folder (`serving.storage.base.disk`)
FASTEST: Final = 0.1  # s between two scans
SHARE: Final = 0.1  # maximum share of one core for scans, while nothing changes
SETTLED: Final = 0.06  # s without another change, after which a save is complete
MAX_NAMED: Final = 4  # changed files that a line names

EDITORS_FILES: Final = ("*~", "*.swp", "*.swx", "*.swo", "*.tmp", "4913", "*.pyc", "*___jb_*___")
"""Files that editors and Python write beside those that are saved. Hidden files and folders are ignored as well."""
_FOLDERS: Final = frozenset({"__pycache__", "node_modules"})

Marks = Mapping[str, tuple[int, int, int]]
"""Modification time in ns, size in bytes and inode of each file, by its path relative to the model's folder."""


class TooManyFiles(KnodelError):
    """The folder has more files than a model may have."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The sorted names of the files that differ."""

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is a difference."""
        return bool(self.changed or self.added or self.removed)

    def __str__(self) -> str:
        """Return a description such as `model.py changed, a.txt and b.txt added`."""
        parts = (("changed", self.changed), ("added", self.added), ("removed", self.removed))
        return ", ".join(f"{_listed(names)} {verb}" for verb, names in parts if names)


class Settling:
    """Report changes once two scans in a row agree, so that a burst of saves, or a slow one, is one change. Pure."""

    def __init__(self, marks: Marks) -> None:
        self._loaded = self._latest = marks

    @property
    def is_settling(self) -> bool:
        """Whether the latest scan differs from what was reported last."""
        return self._latest != self._loaded

    def observe(self, marks: Marks) -> Changes | None:
        """Return the changes since the last report if `marks` equal the scan before; None otherwise."""
        settled, self._latest = marks == self._latest, marks
        if not settled or not self.is_settling:
            return None
        found, self._loaded = changes(self._loaded, marks), marks
        return found


def scan(path: Path, ignored: Sequence[str] = ()) -> Marks:
    """Return the marks of a file (by its name) or of all files of a folder; empty if there is nothing at `path`.

    Raises TooManyFiles.
    """
    try:
        found = path.stat()
    except OSError:
        return {}
    if not stat.S_ISDIR(found.st_mode):
        return {path.name: _mark(found)}
    marks: dict[str, tuple[int, int, int]] = {}
    root = os.fspath(path)
    for where, folders, names in os.walk(root):
        here = os.path.relpath(where, root)
        prefix = "" if here == os.curdir else f"{here}/"
        folders[:] = [name for name in folders if not is_ignored(f"{prefix}{name}", ignored)]
        for name in names:
            file = f"{prefix}{name}"
            if is_ignored(file, ignored):
                continue
            try:
                marks[file] = _mark(os.stat(f"{where}/{name}"))  # noqa: PTH116 - half the time of Path.stat
            except OSError:
                continue  # it was removed meanwhile, or is a broken link
        if len(marks) > MAX_FILES:
            raise TooManyFiles(f"{path} has more than {MAX_FILES} files: name the model's own folder, or use --ignore")
    return marks


def is_ignored(name: str, ignored: Sequence[str]) -> bool:
    """Return whether saves of a file or folder do not matter. Patterns match its relative path or its last part."""
    last = name.rpartition("/")[2]
    if last.startswith(".") or last in _FOLDERS:
        return True
    return any(fnmatchcase(last, one) or fnmatchcase(name, one.rstrip("/")) for one in (*EDITORS_FILES, *ignored))


def changes(before: Marks, after: Marks) -> Changes:
    """Return the difference of two scans."""
    return Changes(
        tuple(sorted(name for name in before.keys() & after.keys() if before[name] != after[name])),
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
    )


def pause_after(took: float, settling: bool) -> float:
    """Return the seconds until the next scan, after one that `took` so many; `settling`: files have just changed."""
    return max(SETTLED, took) if settling else max(FASTEST, took / SHARE)


def _listed(names: Sequence[str]) -> str:
    if len(names) > MAX_NAMED:
        return f"{', '.join(names[:MAX_NAMED])} and {len(names) - MAX_NAMED} more files"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino
