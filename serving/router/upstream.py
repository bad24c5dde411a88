"""The client of Knative's cluster-local ingress: sends a request to a Model's host and streams the response.

No request is sent twice. `clusters.net.client` bounds whole responses, which the router must pass on piece by piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
import yarl

from clusters.base.objects import Key
from clusters.gateway.replies import BROKEN_OFF
from clusters.net.hop_by_hop import HOP_BY_HOP, connection_options
from serving.router.errors import BrokenOff, RouterError

Pairs = list[tuple[bytes, bytes]]
"""Names in lower case and values of headers."""

CONNECT_TIME: Final = 5.0  # s to connect to the ingress, which is in the cluster
IDLE_TIME: Final = 15.0  # s of an idle connection; Envoy's ingresses close after an hour
RETRY_AFTER: Final = 1  # s
PIECE: Final = 64 * 1024  # bytes of a body that are sent at once
_OWN: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_ADDED_BY_AIOHTTP: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

Origin = Callable[[Key], str]
"""Return the scheme and authority to connect to for a Model, such as `http://m.default.svc.cluster.local`."""


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request for `model`: `target` is its path and query, `timeout` (s) bounds the whole exchange.

    `body` is cleared, and `sent` called, once it was sent or given up.
    """

    model: Key
    target: str
    headers: Pairs
    body: bytearray
    timeout: float
    sent: Callable[[], None]


class Upstream:
    """Sends requests to the hosts of Models below `svc.DOMAIN`. `origin` replaces the address to connect to.

    Example:
        async with Upstream("cluster.local") as upstream, upstream.send(request) as response:
            async for piece in pieces_of(response):
                ...
    """

    def __init__(self, domain: str, origin: Origin | None = None) -> None:
        self._domain = domain
        self._origin = origin or (lambda model: f"http://{self.host_of(model)}")
        self._session: aiohttp.ClientSession | None = None

    def host_of(self, model: Key) -> str:
        """Return the host of the Model's Route inside the cluster."""
        return f"{model.name}.{model.namespace}.svc.{self._domain}"

    @asynccontextmanager
    async def send(self, request: ForwardedRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send the request and yield the head of its response. Leaving the block early closes the connection.

        Raises RouterError: 503 if nothing was sent, 504 after the timeout, 502 if the request may have been executed.
        """
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in end_to_end(request.headers)]
        headers += [("Host", self.host_of(request.model)), ("Content-Length", str(len(request.body)))]
        try:
            response = await self._opened().request(
                "POST",
                yarl.URL(self._origin(request.model) + request.target, encoded=True),
                headers=headers,
                data=_pieces(request),
                timeout=aiohttp.ClientTimeout(total=request.timeout, sock_connect=CONNECT_TIME),
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise RouterError(503, "the model cannot be reached now: try again", RETRY_AFTER) from error
        except TimeoutError as error:
            raise RouterError(504, "the model did not respond in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RouterError(502, BROKEN_OFF) from error
        async with response:
            yield response

    async def __aenter__(self) -> Upstream:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_TIME),
                auto_decompress=False,
                skip_auto_headers=_ADDED_BY_AIOHTTP,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


async def pieces_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body of a response as it arrives. Raises BrokenOff if it ends early or takes too long."""
    try:
        async for piece in response.content.iter_any():
            yield piece
    except (aiohttp.ClientError, OSError) as error:
        raise BrokenOff(f"the model's response ended early: {str(error) or type(error).__name__}") from error


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
    """Return the headers of a message that are not only for its connection (RFC 9110 §7.6.1), nor set anew."""
    pairs = [(name.lower(), value) for name, value in headers]
    dropped = _OWN | connection_options(pairs)
    return [(name, value) for name, value in pairs if name not in dropped]


async def _pieces(request: ForwardedRequest) -> AsyncIterator[bytes]:
    try:
        for start in range(0, len(request.body), PIECE):
            yield bytes(request.body[start : start + PIECE])
    finally:
        request.body.clear()
        request.sent()
