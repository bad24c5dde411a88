"""How many threads that mostly wait a server has, and how large their stacks are.

The stack of a thread is mapped as a whole and used as far as code nests. These threads mostly wait, but read JSON, too,
whose depth a caller chooses, up to the recursion limit. msgspec takes some 300 bytes a level (1 MiB holds 3 000 levels,
3 MiB 10 000). RLIMIT_DATA counts what is mapped (`clusters/embedded/kubelet/process/limits.py`).
"""

from __future__ import annotations

import sys
from typing import Final

MOST_WAITING: Final = 500  # threads; each takes 45 kB, and with more, calls of 0.1 s got slower and fewer a second
ROOM: Final = 512 << 20  # bytes of all their stacks; what a replica of the embedded cluster has for them
_LEVEL: Final = 350  # bytes
_MEBIBYTE: Final = 1 << 20
_OF_C: Final = 10_000
"""Levels of C code from Python 3.12 on, whatever the recursion limit is (`Py_C_RECURSION_LIMIT`)."""


def levels() -> int:
    """How deep code may nest in this process now; a model may have changed it as it was loaded."""
    return max(sys.getrecursionlimit(), _OF_C if sys.version_info >= (3, 12) else 0)


def stack_for(levels: int) -> int:
    """Bytes of a stack that holds so many levels, in whole MiB."""
    return -(-levels * _LEVEL // _MEBIBYTE) * _MEBIBYTE


def waiting_threads(slots: int, stack: int) -> int:
    """How many requests are inside of a model that waits at once, each in a thread with such a stack; one at least."""
    return max(1, min(slots, MOST_WAITING, ROOM // stack))
