"""An HTTP client for small pages of Pods, with persistent connections, a deadline and a byte limit for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import MappingProxyType

import aiohttp

from autoscaler.metrics.stat import BadSample, NoPage, NoSample
from clusters.net.client import FAILURES, HttpClient, ResponseContext, failure_reason, read_at_most

MAX_CONNECTIONS = 512  # concurrent sockets; a node's default limit of open files is 1 024


@dataclass(frozen=True, slots=True)
class PodAddress:
    """A port of a Pod (`namespace/name`)."""

    pod: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PodResponse:
    """The body of a 200 response, and its media type."""

    body: bytes
    content_type: str


class PodHttpClient:
    """An HTTP client for many Pods; `timeout` in seconds limits one whole request."""

    def __init__(self, timeout: float) -> None:
        self._client = HttpClient(timeout, partial(aiohttp.TCPConnector, limit=MAX_CONNECTIONS))

    async def get(
        self, address: PodAddress, path: str, max_bytes: int, headers: Mapping[str, str] = MappingProxyType({})
    ) -> PodResponse:
        """Return the page. Raises NoPage, NoSample, or BadSample for a response of more than `max_bytes`."""
        url = f"{address}{path}"
        call = self._client.get(url, headers=headers)
        return await _answer_of(call, address, url, max_bytes, HTTPStatus.OK)

    async def put(self, address: PodAddress, path: str, content: Mapping[str, str], max_bytes: int) -> None:
        """Send JSON; the expected response is 204. Raises the errors of `get`."""
        url = f"{address}{path}"
        call = self._client.request("PUT", url, json=dict(content))
        await _answer_of(call, address, url, max_bytes, HTTPStatus.NO_CONTENT)

    async def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self._client.close()


async def _answer_of(
    call: ResponseContext, address: PodAddress, url: str, max_bytes: int,
    wanted: HTTPStatus,
) -> PodResponse:  # fmt: skip
    try:
        async with call as response:
            if response.status != wanted:
                kind = NoPage if response.status == HTTPStatus.NOT_FOUND else NoSample
                raise kind(f"{address.pod}: {url} answered {response.status}")
            body = await read_at_most(response, max_bytes)
    except aiohttp.ClientConnectorError as error:
        kind = NoPage if isinstance(error.os_error, ConnectionRefusedError) else NoSample
        raise kind(f"{address.pod}: {url} did not answer: {error}") from error
    except FAILURES as error:
        raise NoSample(f"{address.pod}: {url} did not answer: {failure_reason(error)}") from error
    if len(body) > max_bytes:
        raise BadSample(f"{url} answered more than {max_bytes} bytes")
    return PodResponse(body, response.content_type)
