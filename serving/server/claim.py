"""The one assignment of a pool member: who may give it, and that there is never a second one."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Final

from serving.server.assignment import Assignment
from serving.server.assignment_file import AssignmentFile
from serving.server.errors import Conflict, Unauthorized

_SCHEME: Final = "bearer"


class Claim:
    """A member takes one assignment in its life, and remembers it over restarts of its container.

    `token_sha256` is the hex SHA-256 of the token that a load call needs ("": all are refused); `assignment` what the
    member was told in a former life. `given` is done as soon as it is told now.
    """

    def __init__(self, token_sha256: str, file: AssignmentFile, assignment: Assignment | None) -> None:
        self._token_sha256 = token_sha256.encode()
        self._file = file
        self._assignment = assignment
        self.given: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()

    def check_token(self, authorization: str) -> None:
        """Raise Unauthorized, unless this is `Bearer TOKEN`."""
        scheme, _, token = authorization.partition(" ")
        found = hashlib.sha256(token.strip().encode("latin-1", "replace")).hexdigest().encode()
        if scheme.lower() != _SCHEME or not hmac.compare_digest(found, self._token_sha256):
            raise Unauthorized("a load call needs the token of this pool member")

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
