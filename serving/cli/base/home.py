"""Paths of the command line that begin with `~`."""

from __future__ import annotations

from pathlib import Path

from serving.cli.base.errors import UsageError


def expand(path: str | Path) -> Path:
    """Return the path with `~` or `~USER` replaced by the home folder. Raises UsageError when there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = Path(path).parts[0]
        raise UsageError(f"{path}: no home folder is known for {user}: give the whole path") from error
