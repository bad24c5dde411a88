"""Calls to the API server, with timeouts, retries and translated errors.

As in client-go, only responses 429 and 5xx with Retry-After are retried, within `Timeouts.total`. After a 429 or 503
the request was not executed; after another 5xx it may have been, so a creation may find its own object. A lost
connection raises Unavailable at once: the caller decides whether a write may be sent twice.

Just after a restart, kube-apiserver responds before it has loaded its roles, and denies every request. So a denial
within `RULES_LOAD` of a lost connection is retried until that time is over.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, Unavailable
from clusters.base.redact import error_text
from clusters.kubernetes.connection import ApiConnection
from clusters.kubernetes.errors import translate
from clusters.kubernetes.refusals import is_denied_by_authorizer
from clusters.kubernetes.status import read_status, short_line
from clusters.net.retry_after import parse_retry_after

UNAUTHORIZED = 401
UNAVAILABLE = (502, 503, 504)
"""Status codes of an unavailable server, or of the proxy before it."""
RULES_LOAD = 10.0
"""s: kube-apiserver 1.35 denies all requests for 1-2 s after its start; a watch may reconnect 5 s later."""
RULES_PAUSE = 0.5
"""s between two attempts in that time."""
_UNTRUSTED = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)
SHORTEST_RETRY = 1.0
"""s: no object is requested more than once a second from an overloaded server."""
LONGEST_RETRY = 60.0
"""s: one header delays no request for longer."""
JITTER = 0.5
"""Maximum share by which a delay is extended at random, so that clients do not retry together."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds; no request is without one. With the defaults, a dead server is detected within a minute."""

    connect: float = 5.0
    """For TCP and TLS: a running server responds within milliseconds."""
    request: float = 30.0
    """For one response with its body; a webhook may take 10 s by default, and 30 s at most."""
    total: float = 60.0
    """For one call with all retries after 429 and 5xx with Retry-After."""
    watch: float = 40.0
    """The server ends a watch after this time; it is then resumed."""
    silence: float = 50.0
    """A watch without data for this time is considered dead: above `watch`, below one minute."""
    first_backoff: float = 0.25
    """Before the first retry of a broken watch; doubles with each consecutive failure."""
    largest_backoff: float = 5.0
    """The maximum of that delay: how late a watch returns to a server after a long outage."""

    def __post_init__(self) -> None:
        """Raise ValueError for a watch that would be considered dead before the server ends it."""
        if not self.watch < self.silence:
            raise ValueError(f"watch {self.watch} s must be below silence {self.silence} s")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request. `what` names its object in errors."""

    method: str
    path: str
    what: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"


class Transport:
    """Calls over one connection. `chance` returns uniform random numbers in [0, 1)."""

    def __init__(
        self, connection: ApiConnection, clock: Clock, timeouts: Timeouts, chance: Callable[[], float] = random.random
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._timeouts = timeouts
        self._chance = chance
        self._unavailable_at = float("-inf")

    async def call(self, request: ApiRequest) -> Any:
        """Send a request and return the decoded response. Raises the errors of the cluster."""
        deadline = self._clock.monotonic() + self._timeouts.total
        while True:
            try:
                return await self._once(request)
            except Unavailable as error:
                wait = None if error.retry_after is None else self.lengthened(error.retry_after)
                if wait is None or self._clock.monotonic() + wait >= deadline:
                    raise
            await self._clock.sleep(wait)

    @asynccontextmanager
    async def stream(self, request: ApiRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a streamed response, which fails after `silence` seconds without data. Raises the cluster's errors."""
        limit = aiohttp.ClientTimeout(sock_connect=self._timeouts.connect, sock_read=self._timeouts.silence)
        async with self._sent(request, limit, stream=True) as response:
            yield response

    def lengthened(self, seconds: float) -> float:
        """Return `seconds`, extended by up to `JITTER` at random."""
        return seconds * (1 + JITTER * self._chance())

    async def _once(self, request: ApiRequest) -> Any:
        limit = aiohttp.ClientTimeout(total=self._timeouts.request, sock_connect=self._timeouts.connect)
        async with self._sent(request, limit) as response:
            body = await response.read()
            try:
                return msgspec.json.decode(body)
            except msgspec.MsgspecError as exc:
                server = self._connection.server
                raise Unavailable(f"{request.what}: the response of {server} is not JSON: try again") from exc

    @asynccontextmanager
    async def _sent(
        self, request: ApiRequest, limit: aiohttp.ClientTimeout, *, stream: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the successful response, after a new login if needed. Errors while it is read are translated too."""
        login = self._connection.login
        try:
            async with await self._send(request, limit, stream) as response:
                if response.status != UNAUTHORIZED:
                    await self._refuse(request, response)
                    yield response
                    return
            if not await self._connection.renew(login):
                raise translate(request.what, read_status(UNAUTHORIZED, b""))
            async with await self._send(request, limit, stream) as response:
                await self._refuse(request, response)
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as exc:
            self._unavailable_at = self._clock.monotonic()
            if isinstance(exc, _UNTRUSTED):
                await self._connection.renew(login)  # the certificate authority may have changed
            raise Unavailable(f"{request.what}: {self._connection.server} {_trouble(exc, self._timeouts)}") from exc

    async def _send(self, request: ApiRequest, limit: aiohttp.ClientTimeout, stream: bool) -> Any:
        return await self._connection.send(
            request.method,
            request.path,
            timeout=limit,
            query=request.query,
            body=request.body,
            content_type=request.content_type,
            stream=stream,
        )

    async def _refuse(self, request: ApiRequest, response: aiohttp.ClientResponse) -> None:
        if 200 <= response.status < 300:
            return
        wait = self._retry_after(response)
        status = read_status(response.status, await response.read())
        error = translate(request.what, status, wait)
        if response.status in UNAVAILABLE:
            self._unavailable_at = self._clock.monotonic()
        elif isinstance(error, Forbidden) and is_denied_by_authorizer(status.message) and self._is_restarting():
            raise Unavailable(f"{error}: the cluster was unavailable a moment ago: try again", RULES_PAUSE)
        raise error

    def _retry_after(self, response: aiohttp.ClientResponse) -> float | None:
        """Return the seconds of the Retry-After header, None without one. An invalid one counts as the shortest."""
        header = response.headers.get("Retry-After")
        if header is None:
            return None
        seconds = parse_retry_after(header, self._clock.now(), least=SHORTEST_RETRY, most=LONGEST_RETRY)
        return SHORTEST_RETRY if seconds is None else seconds

    def _is_restarting(self) -> bool:
        """Return whether the server may just have started and not loaded its roles yet."""
        return self._clock.monotonic() - self._unavailable_at < RULES_LOAD


def _trouble(exc: Exception, timeouts: Timeouts) -> str:
    """Return the fault of the connection and a remedy."""
    match exc:
        case _ if isinstance(exc, _UNTRUSTED):
            return f"is not trusted: {exc}: check the certificate authority in the kubeconfig"
        case aiohttp.ConnectionTimeoutError():
            return f"did not accept a connection within {timeouts.connect:g} s: check that it runs"
        case aiohttp.SocketTimeoutError():
            return f"sent nothing for {timeouts.silence:g} s: try again"
        case TimeoutError():
            return f"did not respond within {timeouts.request:g} s: try again"
        case aiohttp.ClientConnectorError(os_error=cause):
            known = cause.errno is not None and cause.errno > 0
            return f"cannot be reached: {os.strerror(cause.errno or 0) if known else cause}: check that it runs"
        case _:
            return f"broke the connection: {short_line(error_text(exc))}: try again"
