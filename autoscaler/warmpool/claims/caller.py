"""The load call, by which a member receives its model over the network."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote

import aiohttp

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.assignment import MemberAssignment
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.client import FAILURES, HttpClient, failure_reason, read_at_most
from clusters.net.endpoints import Endpoint

MAX_ANSWER: Final = 4_096
"""Maximum bytes read of a response; ours has about 40, an error one line."""
MAX_CALLS: Final = 64
"""Concurrent calls; each takes milliseconds, or ends at its deadline."""
LONGEST_TOLD: Final = 200
"""Maximum characters of an error that a message repeats."""


class LoadCallFailed(KnodelError):
    """Raised when the member did not accept the model: it rejected it, sent a malformed response, or did not answer in
    time.
    """


class LoadCallRefused(LoadCallFailed):
    """Raised when the assignment is invalid for every member, so that trying another one is useless."""


class LoadCaller(Protocol):
    """Sends assignments to members."""

    async def load(self, endpoint: Endpoint, token: str, assignment: MemberAssignment) -> None:
        """Return when the member has stored the assignment and begins to load the model.

        Repeating the same assignment is not an error. Raises LoadCallFailed or LoadCallRefused, within its own
        deadline.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class HttpLoadCaller:
    """`POST http://HOST:MANAGEMENT_PORT/v2/repository/models/NAME/load`, with a new connection for each member."""

    def __init__(self, settings: WarmStart | None = None) -> None:
        timeout = (settings or WarmStart()).assign_timeout
        self._client = HttpClient(timeout, partial(aiohttp.TCPConnector, limit=MAX_CALLS, force_close=True))

    async def load(self, endpoint: Endpoint, token: str, assignment: MemberAssignment) -> None:
        """Send the assignment. Raises LoadCallFailed after `WarmStart.assign_timeout` at the latest, LoadCallRefused
        for a 400.
        """
        url = f"http://{endpoint.host}:{endpoint.management_port}{load_path(assignment.name)}"
        headers = {"Authorization": f"Bearer {token}"}
        call = self._client.post(url, json=assignment.body(), headers=headers)
        try:
            async with call as response:
                answer = await read_at_most(response, MAX_ANSWER)
        except FAILURES as exc:
            raise LoadCallFailed(f"{endpoint.pod}: {url} did not answer: {failure_reason(exc)}") from exc
        if response.status != HTTPStatus.OK:
            kind = LoadCallRefused if response.status == HTTPStatus.BAD_REQUEST else LoadCallFailed
            raise kind(f"{endpoint.pod}: {url} answered {response.status}: {_words(answer)}")

    async def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        await self._client.close()


def load_path(model: str) -> str:
    """Return the path of the load call (Open Inference Protocol, model repository extension)."""
    return f"/v2/repository/models/{quote(model, safe='')}/load"


def _words(answer: bytes) -> str:
    """Return the error in a response, as one line."""
    text = answer.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    error = str(found["error"]) if isinstance(found, dict) and "error" in found else text
    return one_line(error, LONGEST_TOLD) or "no reason given"
