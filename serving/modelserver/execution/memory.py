"""How much memory this process and those that it started take, as Linux counts it."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_RESIDENT: Final = 1  # field of /proc/PID/statm (proc_pid_statm(5)), in pages
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of main memory that this process and its children hold; 0 where that cannot be read.

    Pages that two of them share count twice, as they do for a child that does not fork but starts anew.
    """
    return sum(_resident(pid) for pid in _family(os.getpid()))


def at_once(_: str) -> int:
    """A gauge of `loading` that takes no time: what was free in the process, and is used now, is not seen."""
    return resident()


def give_back() -> None:
    """Let the allocator return to the system what was freed (glibc's malloc_trim(3)); nothing with another one."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _family(pid: int) -> list[int]:
    """The process and all that it started, and those started; who ended meanwhile is left out."""
    found = [pid]
    with suppress(OSError, ValueError):
        for task in (_PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    return found


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[_RESIDENT]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
