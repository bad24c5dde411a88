"""The load call: how a member learns over the network what it is to serve."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote

import aiohttp

from autoscaler.config import WarmStart
from autoscaler.warmpool.claims.assignment import Assignment
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.endpoints import Endpoint
from clusters.net.session import LazySession, read_at_most

MAX_ANSWER: Final = 4_096
"""Bytes of an answer that are read; ours has some 40, an error one line."""
MAX_CALLS: Final = 64
"""Calls at once; each is over in milliseconds, or at its deadline."""
LONGEST_TOLD: Final = 200
"""Characters of a refusal that are repeated in a message."""


class LoadFailed(KnodelError):
    """The member did not take the model: it refused, answered nonsense, or did not answer in time."""


class LoadRefused(LoadFailed):
    """The member says that nobody could serve what it was told: another one would say the same."""


class LoadCaller(Protocol):
    """Gives models to members."""

    async def load(self, endpoint: Endpoint, token: str, assignment: Assignment) -> None:
        """Return when the member has written the assignment down and begins to load.

        Giving it the same again is no error. Raises LoadFailed or LoadRefused, within a deadline of its own.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class HttpLoadCaller:
    """`POST http://HOST:MANAGEMENT_PORT/v2/repository/models/NAME/load`, a connection each, as each member has one."""

    def __init__(self, settings: WarmStart | None = None) -> None:
        timeout = (settings or WarmStart()).assign_timeout
        self._session = LazySession(timeout, partial(aiohttp.TCPConnector, limit=MAX_CALLS, force_close=True))

    async def load(self, endpoint: Endpoint, token: str, assignment: Assignment) -> None:
        """Raises LoadFailed after `WarmStart.assign_timeout` at the latest, LoadRefused for a 400."""
        url = f"http://{endpoint.host}:{endpoint.management_port}{load_path(assignment.name)}"
        headers = {"Authorization": f"Bearer {token}"}
        call = self._session.open().post(url, json=assignment.body(), headers=headers, allow_redirects=False)
        try:
            async with call as response:
                answer = await read_at_most(response, MAX_ANSWER)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
            raise LoadFailed(f"{endpoint.pod}: {url} did not answer: {str(exc) or type(exc).__name__}") from exc
        if response.status != HTTPStatus.OK:
            kind = LoadRefused if response.status == HTTPStatus.BAD_REQUEST else LoadFailed
            raise kind(f"{endpoint.pod}: {url} answered {response.status}: {_words(answer)}")

    async def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        await self._session.close()


def load_path(model: str) -> str:
    """The path of the load call (Open Inference Protocol, model repository extension)."""
    return f"/v2/repository/models/{quote(model, safe='')}/load"


def _words(answer: bytes) -> str:
    """The error in an answer, on one line."""
    text = answer.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    said = str(found["error"]) if isinstance(found, dict) and "error" in found else text
    return one_line(said, LONGEST_TOLD) or "no reason given"
