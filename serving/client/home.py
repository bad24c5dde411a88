"""Expand `~` in paths of the command line."""

from __future__ import annotations

from pathlib import Path

from serving.client.errors import UsageError


def expand_home(path: str | Path) -> Path:
    """Return the path with `~` or `~USER` replaced by the home folder. Raises UsageError when it is unknown."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        user = Path(path).parts[0]
        raise UsageError(f"{path}: the home folder of {user} is unknown: give an absolute path") from error
