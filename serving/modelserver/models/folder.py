"""Find the models of a folder: each subfolder, and each file of a known format, is a model of that name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import find_format
from serving.modelserver.base.assignment import Assignment, ModelBounds, is_name
from serving.modelserver.base.errors import BadOptions

log = logging.getLogger(__name__)

FIRST: Final = 1
_LOST_AND_FOUND: Final = "lost+found"  # a file system creates it in the root of a volume


def revision_of(name: str, number: int) -> str:
    """Return the revision of the model `name` when it is loaded for the `number`th time."""
    return f"{name}-{number:05d}"


def models_in(folder: Path, format: str, bounds: ModelBounds) -> list[Assignment]:
    """Return all models of the folder by name. An empty `format` is detected for each model.

    Raises BadOptions, UnknownFormat.
    """
    if format:
        find_format(format, ())
    found: dict[str, Path] = {}
    for path in filter(partial(_is_model, format), _entries(folder)):
        name = path.name if path.is_dir() else path.name.partition(".")[0]
        if not is_name(revision_of(name, FIRST)):
            raise BadOptions(f"{path} cannot be served as {name!r}: use a name of at most 57 of a-z, 0-9 and '-'")
        if name in found:
            raise BadOptions(f"{found[name]} and {path} are both named {name!r}: rename one")
        found[name] = path
    return [
        Assignment(name, revision_of(name, FIRST), path.absolute().as_uri(), "", format, bounds)
        for name, path in found.items()
    ]


def find_model(folder: Path, name: str, format: str, bounds: ModelBounds) -> Assignment | None:
    """Return the model `name`, which may be new in the folder; None without it. Raises BadOptions, UnknownFormat."""
    return next((model for model in models_in(folder, format, bounds) if model.name == name), None)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise BadOptions(f"--models {folder}: {error.strerror}; pass a folder of models") from error
    return (path for path in entries if not path.name.startswith(".") and path.name != _LOST_AND_FOUND)


def _is_model(format: str, path: Path) -> bool:
    """Return whether a path is a model. The content of a subfolder is only checked when it is loaded."""
    if path.is_dir():
        return True
    name = path.name.lower()
    try:
        made = find_format(format, [name])
    except UnknownFormat as error:
        log.warning("ignoring %s: %s", path, error)
        return False
    return name.endswith(made.suffixes) or name in made.names
