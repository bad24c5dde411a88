"""Mounts that one thread of a test makes, and that only it and the processes that it starts have."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

CLONE_NEWNS: Final = 0x00020000
"""`unshare`: a mount namespace of its own (sched.h). Linux has one for each thread."""


class MayNotMount(Exception):
    """Mounting takes root, which a container may not have."""


def in_mount_namespace(work: Callable[[], T]) -> T:
    """Return what `work` returns, called in a thread with a mount namespace of its own, gone afterwards.

    Raises MayNotMount for a user who is not root, or is root in a container only.
    """

    def unshared() -> T:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
            raise MayNotMount(os.strerror(ctypes.get_errno()))
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(unshared).result()


def make_read_only(folder: Path) -> None:
    """Let the folder be on a read-only disk; files that are open for writing stay so."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def make_writable(folder: Path) -> None:
    """Undo `make_read_only`."""
    subprocess.run(["umount", str(folder)], check=True)
