"""Locks on folders that several processes share: a folder is deleted only while no other process uses it.

The lock is `flock` on the folder itself. The kernel releases it when the process ends, and it stays on the folder when
that is renamed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path


class LockedFolder:
    """A locked folder, until `release` or the end of the object. A `temporary` folder is deleted at release."""

    __slots__ = ("_descriptor", "path", "temporary")

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.temporary = False
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. Further calls do nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # modules may be gone when the interpreter exits, which releases the lock
            self.release()


def lock_folder(path: Path, *, exclusive: bool = False) -> LockedFolder | None:
    """Lock a folder, shared or exclusive, without waiting; None if it is absent or another lock conflicts.

    Raises OSError where folders cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    locked = LockedFolder(path, descriptor)  # closes the descriptor in any case
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):  # else it was renamed or deleted meanwhile
            return locked
    except (BlockingIOError, FileNotFoundError):
        pass
    locked.release()
    return None
