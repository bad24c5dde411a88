"""Open files that the user of a command names."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO


def open_input(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises OSError, also for a named pipe: opening one would block until another process writes to it. Pipes of a shell
    (`<(command)`, `/dev/stdin`) have no name in a folder, and are accepted.
    """
    if stat.S_ISFIFO(path.stat().st_mode) and path.resolve().is_fifo():
        raise OSError(errno.ESPIPE, "it is a named pipe, not a regular file")
    return path.open("rb")
