"""What a pool member was told to serve, in its own temporary folder: it outlives the container, not the Pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from serving.modelserver.base.assignment import Assignment, BadAssignment, ModelBounds, from_stored, to_stored

FILE_NAME: Final = "knodel-assignment.json"
_UNFINISHED: Final = ".new"
_MODE: Final = 0o600
_LARGEST: Final = 64 * 1024  # bytes; ours have some 300


class AssignmentFile:
    """The file `FILE_NAME` in `folder`; `default` as in `assignment_of`."""

    def __init__(self, folder: Path, default: ModelBounds) -> None:
        self._path = folder / FILE_NAME
        self._default = default

    def read(self) -> Assignment | None:
        """What was written; None when nothing was. Raises BadAssignment for what was not written by us."""
        try:
            with self._path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadAssignment(f"{self._path} cannot be read ({error.strerror}): replace this Pod") from error
        try:
            if len(content) > _LARGEST:
                raise BadAssignment(f"it has more than {_LARGEST} bytes")
            return from_stored(content, self._default)
        except BadAssignment as error:
            raise BadAssignment(f"{self._path} is no assignment, replace this Pod: {error}") from error

    def write(self, assignment: Assignment) -> None:
        """Keep it: whole or not at all, and for a process that is killed, not for a node that crashes (no fsync).

        Raises BadAssignment when it cannot be kept.
        """
        unfinished = self._path.with_name(FILE_NAME + _UNFINISHED)
        try:
            fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            with os.fdopen(fd, "wb") as file:
                file.write(to_stored(assignment))
            unfinished.replace(self._path)
        except OSError as error:
            raise BadAssignment(f"{self._path} cannot be written ({error.strerror})") from error
