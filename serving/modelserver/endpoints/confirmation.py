"""Keep a replica out of the traffic until the platform has recorded the digest of the files that it loaded.

    GET /digest?wait=20     {"digest": "sha256:…" | null, "confirmed": false}, as soon as the files are here, or after
                            that many seconds
    PUT /digest             {"digest": "sha256:…"}: the recorded digest. 204 when it is the digest of these files: the
                            replica may become ready. Else 409, and nothing changes

Both are paths of the management port. Only a replica that was started without a recorded digest waits: the first
replicas of a revision, and later ones whose mount was made before the record. The call needs no token, because it
cannot make a replica serve other files than it has; the autoscaler compares the digests of ready replicas as well.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from serving.modelserver.base.errors import BadRequest, Conflict
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.codec.bounded_read import read_content
from serving.modelserver.endpoints.app import json_response

WAITING: Final = "the digest of the model's files is not recorded yet: try again"
LONGEST_WAIT: Final = 60.0  # s for which a GET is kept open
_LARGEST_BODY: Final = 1024  # bytes; ours have some 90


class _Recorded(msgspec.Struct, forbid_unknown_fields=True):
    digest: str


class Confirmation:
    """The digest of a server's files, and whether it is confirmed to be the recorded one.

    Made inside of the event loop. A server that is not `needed` to wait is confirmed from the start.
    """

    def __init__(self, *, needed: bool) -> None:
        self._digest = ""
        self._found = asyncio.Event()
        self._confirmed = asyncio.Event()
        self._budget = BodyBudget(_LARGEST_BODY)
        if not needed:
            self._confirmed.set()
            self._found.set()

    @property
    def confirmed(self) -> bool:
        """Whether the replica may become ready."""
        return self._confirmed.is_set()

    def found(self, digest: str) -> None:
        """Take the digest of the files that are being loaded; answer the callers that wait for it."""
        self._digest = digest
        self._found.set()

    def confirm(self, recorded: str) -> None:
        """Let the replica become ready. Raises Conflict when `recorded` is not the digest of its files."""
        if not self._digest:
            raise Conflict("the files of the model are not here yet: try again")
        if recorded != self._digest:
            raise Conflict(f"the files of this replica have the digest {self._digest}, not {recorded[:80]}")
        self._confirmed.set()

    async def wait(self) -> None:
        """Return once the digest is confirmed."""
        await self._confirmed.wait()

    def close(self) -> None:
        """Answer the callers that wait: the server ends."""
        self._found.set()

    def routes(self) -> list[BaseRoute]:
        """Return the paths of the management port."""
        return [Route("/digest", self._get), Route("/digest", self._put, methods=["PUT"])]

    async def _get(self, request: Request) -> Response:
        with suppress(TimeoutError):
            async with asyncio.timeout(_seconds(request.query_params.get("wait", "0"))):
                await self._found.wait()
        return json_response({"digest": self._digest or None, "confirmed": self.confirmed})

    async def _put(self, request: Request) -> Response:
        content, lent = await read_content(request.receive, self._budget)
        self._budget.give_back(lent)
        try:
            recorded = msgspec.json.decode(content, type=_Recorded).digest
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f'the body is {{"digest": "sha256:…"}}: {error}') from error
        self.confirm(recorded)
        return Response(status_code=204)


def _seconds(text: str) -> float:
    """Return the seconds of `wait`, at most LONGEST_WAIT. Raises BadRequest."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise BadRequest(f"wait={text[:20]}: is not a number of seconds")
    return min(seconds, LONGEST_WAIT)
