"""Remove the files that processes leave in a folder, on a disk that may have become read-only."""

from __future__ import annotations

import errno
from pathlib import Path


def remove_files(*paths: Path) -> list[Path]:
    """Remove the files and return those that remain because their disk is read-only.

    Absent files are ignored. Raises OSError for any other failure.
    """
    return [path for path in paths if not _is_removed(path)]


def _is_removed(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return not path.exists()  # on a read-only disk, Linux refuses the removal of an absent file too
    return True
