"""The assignment of a pool member, and its file, which survives a restart of the container but not of the Pod."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from serving.modelserver.base.assignment import Assignment, BadAssignment, ModelBounds, from_stored, to_stored
from serving.modelserver.base.errors import ModelConflict

FILE_NAME: Final = "knodel-assignment.json"
_TEMPORARY: Final = ".new"
_MODE: Final = 0o600
_MAX_SIZE: Final = 512 * 1024  # bytes; the server's own files have about 300, with every option of `spec.llm` 100 000


class AssignmentFile:
    """The file `FILE_NAME` in `folder`; `default` as in `parse_assignment`."""

    def __init__(self, folder: Path, default: ModelBounds) -> None:
        self._path = folder / FILE_NAME
        self._default = default

    def read(self) -> Assignment | None:
        """Return the stored assignment; None without a file. Raises BadAssignment for an invalid file."""
        try:
            with self._path.open("rb") as file:
                content = file.read(_MAX_SIZE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadAssignment(f"{self._path} cannot be read ({error.strerror}): replace this Pod") from error
        try:
            if len(content) > _MAX_SIZE:
                raise BadAssignment(f"it has more than {_MAX_SIZE} bytes")
            return from_stored(content, self._default)
        except BadAssignment as error:
            raise BadAssignment(f"{self._path} is not a valid assignment, replace this Pod: {error}") from error

    def write(self, assignment: Assignment) -> None:
        """Store the assignment atomically. It survives a killed process but not a crash of the node (no fsync).

        Raises BadAssignment when it cannot be stored.
        """
        temporary = self._path.with_name(FILE_NAME + _TEMPORARY)
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            with os.fdopen(fd, "wb") as file:
                file.write(to_stored(assignment))
            temporary.replace(self._path)
        except OSError as error:
            raise BadAssignment(f"{self._path} cannot be written ({error.strerror})") from error


class MemberClaim:
    """The claim of a pool member, which accepts one assignment in its life and stores it in `file`.

    `assignment` is the one that was accepted before a restart of the container. `given` completes when the member
    accepts its assignment now. Create it inside the event loop.
    """

    def __init__(self, file: AssignmentFile, assignment: Assignment | None) -> None:
        self._file = file
        self._assignment = assignment
        self.given: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()

    def take(self, assignment: Assignment) -> None:
        """Accept and store the assignment; the same one again changes nothing.

        Raises ModelConflict for a different one, BadAssignment when it cannot be stored.
        """
        if self._assignment is None:
            self._file.write(assignment)
            self._assignment = assignment
            self.given.set_result(assignment)
        elif self._assignment != assignment:
            raise ModelConflict(f"this server is claimed: it serves revision {self._assignment.revision!r}")
