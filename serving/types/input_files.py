"""Files that the caller of a command names."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import BinaryIO


def open_input(path: Path) -> BinaryIO:
    """Open a file that the caller named, for reading.

    Raises OSError, for a named pipe as well: to open it would wait until another process writes to it. A pipe of the
    shell (`<(command)`, `/dev/stdin`) has no name in a folder, and is read.
    """
    if stat.S_ISFIFO(path.stat().st_mode) and path.resolve().is_fifo():
        raise OSError(errno.ESPIPE, "it is a named pipe, not a regular file")
    return path.open("rb")
