"""Measure the memory of this process and its descendants, as Linux accounts it."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_RESIDENT: Final = 1  # field of /proc/PID/statm (proc_pid_statm(5)), in pages
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process and its descendants; 0 where it cannot be read.

    Pages shared by two of them count twice. A child that was started by exec rather than fork shares nearly none.
    """
    total = 0
    for pid in _process_tree(os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            total += int((_PROC / str(pid) / "statm").read_text().split()[_RESIDENT]) * _PAGE
    return total


def quick_gauge(_: str) -> int:
    """Measure memory for `loading.load_model` at no cost; reuse of memory that was free before is not measured."""
    return resident_bytes()


def trim_allocator() -> None:
    """Return freed memory to the system (glibc's malloc_trim(3)); does nothing with another allocator."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants, without those that have ended meanwhile."""
    found = [pid]
    with suppress(OSError, ValueError):
        for task in (_PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                found += _process_tree(int(child))
    return found
