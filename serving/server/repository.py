"""The load call of the model repository extension, by which a pool member becomes a model's server."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from serving.server.app import json_answer
from serving.server.assignment import BadAssignment, Bounds, assignment_of
from serving.server.body import read_content
from serving.server.claim import Claim
from serving.server.errors import BadRequest, Conflict, NotReady
from serving.server.lifecycle import Lifecycle
from serving.server.limits import BodyBudget

LARGEST_BODY: Final = 64 * 1024  # bytes; ours have some 300


class Repository:
    """`POST /v2/repository/models/NAME/load`; `claim` is None on a server that is no pool member."""

    def __init__(self, claim: Claim | None, lifecycle: Lifecycle, default: Bounds) -> None:
        self._claim = claim
        self._lifecycle = lifecycle
        self._default = default
        self._budget = BodyBudget(LARGEST_BODY)

    async def load(self, request: Request) -> Response:
        """Take the assignment and answer before it is loaded. Raises ServingError."""
        claim = self._claim
        if claim is None:
            raise Conflict("this server is no member of a pool: it serves the model of its command line")
        claim.check_token(request.headers.get("authorization", ""))
        content, lent = await read_content(request.receive, self._budget)
        self._budget.give_back(lent)
        if self._lifecycle.draining:
            raise NotReady(self._lifecycle.reason)
        name = request.path_params["name"]
        try:
            assignment = assignment_of(name, content, self._default)
        except BadAssignment as error:
            raise BadRequest(str(error)) from error
        try:
            claim.take(assignment)
        except BadAssignment as error:  # it is this member that cannot keep it
            raise NotReady(str(error)) from error
        return json_answer({"name": name, "state": "READY" if self._lifecycle.serves else "LOADING"})
