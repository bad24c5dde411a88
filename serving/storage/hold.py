"""Folders that several processes share: whoever uses one holds it, and only what nobody holds may go.

A hold is a lock (`flock`) on the folder itself: it ends with the process, however that ends, and goes along when the
folder is renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path


class Hold:
    """A held folder, until `release` or the end of the object; a `temporary` one is deleted then."""

    __slots__ = ("_descriptor", "path", "temporary")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.temporary = False
        self._descriptor = descriptor

    def release(self) -> None:
        """Others may have it, and delete it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at the interpreter's end modules may be gone; the lock goes anyway
            self.release()


def hold(path: Path, *, alone: bool = False) -> Hold | None:
    """Hold a folder, with others or alone; None when it is not there, or somebody holds it so that this cannot be.

    Raises OSError where folders cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    held = Hold(path, descriptor)  # closes it in any case
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):  # else it was renamed or deleted since it was opened
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    held.release()
    return None
