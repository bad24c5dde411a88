"""Keep a replica from becoming ready until the platform has recorded the digest of its files.

    GET /digest?wait=20     {"digest": "sha256:…" | null, "confirmed": false}, as soon as the files are local, or
                            after `wait` seconds
    PUT /digest             body {"digest": "sha256:…"}, the recorded digest. 204 if the files have this digest: the
                            replica may become ready. Otherwise 409, and nothing changes

Both paths are on the management port. Only a replica that starts without a recorded digest waits. These are the first
replicas of a revision, and later ones whose mount precedes the record. The call needs no token, because it cannot make
a replica serve other files than it has. In addition, the autoscaler compares the digests of ready replicas.
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

from serving.modelserver.base.errors import InvalidRequest, ModelConflict
from serving.modelserver.base.limits import BodyBudget
from serving.modelserver.codec.bounded_read import read_content
from serving.modelserver.endpoints.app import json_response

NOT_CONFIRMED: Final = "the digest of the model files is not recorded yet: try again"
MAX_WAIT: Final = 60.0  # s; the maximum duration of a GET
_MAX_BODY_SIZE: Final = 1024  # bytes; a valid body has about 90


class _Recorded(msgspec.Struct, forbid_unknown_fields=True):
    digest: str


class Confirmation:
    """The digest of the files of a server, and whether it matches the recorded one.

    Create it inside of the event loop. If confirmation is not `needed`, it is confirmed from the start.
    """

    def __init__(self, *, needed: bool) -> None:
        self._digest = ""
        self._has_digest = asyncio.Event()
        self._confirmed = asyncio.Event()
        self._budget = BodyBudget(_MAX_BODY_SIZE)
        if not needed:
            self._confirmed.set()
            self._has_digest.set()

    @property
    def confirmed(self) -> bool:
        """Return whether the replica may become ready."""
        return self._confirmed.is_set()

    def set_digest(self, digest: str) -> None:
        """Set the digest of the files that are being loaded, and answer the waiting callers."""
        self._digest = digest
        self._has_digest.set()

    def confirm(self, recorded: str) -> None:
        """Let the replica become ready. Raises ModelConflict if its files do not have the digest `recorded`."""
        if not self._digest:
            raise ModelConflict("the model files are not loaded yet: try again")
        if recorded != self._digest:
            raise ModelConflict(f"the files of this replica have the digest {self._digest}, not {recorded[:80]}")
        self._confirmed.set()

    async def wait(self) -> None:
        """Wait until the digest is confirmed."""
        await self._confirmed.wait()

    def close(self) -> None:
        """Answer the waiting callers: the server shuts down."""
        self._has_digest.set()

    def routes(self) -> list[BaseRoute]:
        """Return the routes for the management port."""
        return [Route("/digest", self._get), Route("/digest", self._put, methods=["PUT"])]

    async def _get(self, request: Request) -> Response:
        text = request.query_params.get("wait", "0")
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not seconds >= 0:
            raise InvalidRequest(f"wait={text[:20]} is not a number of seconds")
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, MAX_WAIT)):
                await self._has_digest.wait()
        return json_response({"digest": self._digest or None, "confirmed": self.confirmed})

    async def _put(self, request: Request) -> Response:
        content, lent = await read_content(request.receive, self._budget)
        self._budget.give_back(lent)
        try:
            recorded = msgspec.json.decode(content, type=_Recorded).digest
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f'the body is not {{"digest": "sha256:…"}}: {error}') from error
        self.confirm(recorded)
        return Response(status_code=204)
