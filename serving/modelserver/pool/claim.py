"""The one assignment of a pool member: there is never a second one."""

from __future__ import annotations

import asyncio

from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import Conflict
from serving.modelserver.pool.assignment_file import AssignmentFile


class Claim:
    """A member takes one assignment in its life, and remembers it over restarts of its container.

    `assignment` is what the member was told in a former life. `given` is done as soon as it is told now.
    """

    def __init__(self, file: AssignmentFile, assignment: Assignment | None) -> None:
        self._file = file
        self._assignment = assignment
        self.given: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()

    def take(self, assignment: Assignment) -> None:
        """Be this model's server from now on, written down; the same again changes nothing.

        Raises Conflict for another one, BadAssignment when it cannot be written down.
        """
        if self._assignment is None:
            self._file.write(assignment)
            self._assignment = assignment
            self.given.set_result(assignment)
        elif self._assignment != assignment:
            raise Conflict(f"this server is taken: it serves revision {self._assignment.revision!r}")
