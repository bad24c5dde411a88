"""The HTTP client of controllers, on aiohttp: pooled, with a deadline, without redirects, and with bounded bodies.

`checked_connector` restricts a client to addresses that the policy against request forgery allows (`ssrf`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver, ResolveResult

from clusters.net.ssrf import check_addresses

FAILURES: Final = (aiohttp.ClientError, OSError, ValueError)
"""Errors of a request: TimeoutError is an OSError, and an invalid URL or header is a ValueError."""

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Return the IP addresses of a host. Raises OSError."""

ResponseContext = AbstractAsyncContextManager[aiohttp.ClientResponse]


class HttpClient:
    """Sends requests over pooled connections. `timeout` (s) bounds a whole request with its body.

    Redirects are not followed, and cookies and proxies of the environment are not used. Requests ask for uncompressed
    responses, whose size is bounded on the wire. With `decompress` a compressed response is accepted all the same.

    Construct a client anywhere; it opens its connector at the first request, in the event loop of that request.

    Example:
        client = HttpClient(timeout=5.0)
        async with client.get("http://10.0.0.1:9095/metrics") as response:
            body = await read_at_most(response, 1 << 20)
        await client.close()
    """

    def __init__(
        self,
        timeout: float,
        connector: Callable[[], aiohttp.BaseConnector] = aiohttp.TCPConnector,
        *,
        decompress: bool = False,
    ) -> None:
        self._timeout = timeout
        self._connector = connector
        self._decompress = decompress
        self._session: aiohttp.ClientSession | None = None

    def get(
        self, url: str | yarl.URL, *, headers: Mapping[str, str] | None = None, params: Mapping[str, str] | None = None
    ) -> ResponseContext:
        """Send a GET request. Raises FAILURES."""
        return self.request("GET", url, headers=headers, params=params)

    def post(
        self, url: str | yarl.URL, *, headers: Mapping[str, str] | None = None, data: Any = None, json: Any = None
    ) -> ResponseContext:
        """Send a POST request with `data` (bytes, or a mapping as a form) or `json`. Raises FAILURES."""
        return self.request("POST", url, headers=headers, data=data, json=json)

    def request(self, method: str, url: str | yarl.URL, **options: Any) -> ResponseContext:
        """Send a request with the options of `aiohttp.ClientSession.request`. Raises FAILURES."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(),
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=self._decompress,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session.request(method, url, allow_redirects=False, **options)

    async def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response, whose server may send without end.

    Of a body longer than `most` bytes it returns `most` + 1 bytes and closes the connection.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            response.close()
            break
    return bytes(body[: most + 1])


def failure_reason(error: BaseException) -> str:
    """Return the text of one of FAILURES, or the name of its type if it has none, as for a timeout."""
    return str(error) or type(error).__name__


def checked_connector(allow_hosts: frozenset[str], resolve: Resolve | None = None) -> aiohttp.TCPConnector:
    """Return a connector whose requests raise AddressRefused for hosts that `ssrf.check_addresses` refuses.

    It resolves a host once, checks all addresses, and connects to one of them. `resolve` replaces the system's
    resolver.

    Example:
        client = HttpClient(5.0, lambda: checked_connector(frozenset({"issuer.internal"})))
    """
    resolver = _CheckedResolver(allow_hosts, resolve or resolve_by_system)
    return aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, socket_factory=resolver.open_socket)


async def resolve_by_system(host: str) -> Sequence[str]:
    """Return the IP addresses of a host from the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class _CheckedResolver(AbstractResolver):
    def __init__(self, allow_hosts: frozenset[str], resolve: Resolve) -> None:
        self._allow_hosts = allow_hosts
        self._resolve = resolve
        self._checked: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = list(dict.fromkeys(await self._resolve(host)))
        check_addresses(host, addresses, self._allow_hosts)
        self._checked.update(addresses)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses
        ]

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for a checked address. aiohttp does not resolve hosts that are addresses."""
        family, kind, protocol, _, place = info
        address = str(place[0])
        if address not in self._checked:
            check_addresses(address, [address], self._allow_hosts)
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        self._checked.clear()
