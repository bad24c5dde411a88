"""Where readings come from: the two narrow interfaces that the autoscaler needs of the outer world, and the scraper.

`MetricSource` answers for one replica, `ActivatorLoad` for the requests that wait or pass at the activator. Both hold
on every cluster; which implementation is used is the composition root's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import aiohttp

from autoscaler.config import Sampling
from autoscaler.metrics.stat import BadSample, Sample, parse_stats
from clusters.clock import Clock
from clusters.endpoints import Endpoint
from clusters.errors import KnodelError
from clusters.objects import Key

HTTP_OK = 200
MAX_CONNECTIONS = 512  # sockets at once; a node's default limit of open files is 1 024


class NoSample(KnodelError):
    """A replica did not answer in time, or not at all: that is neither zero nor failure of the replica."""


class MetricSource(Protocol):
    """Readings of replicas."""

    async def sample(self, endpoint: Endpoint) -> Sample:
        """The replica's reading now. Raises NoSample or BadSample."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class LoadView(Protocol):
    """Requests of one revision at the activator."""

    @property
    def queued(self) -> int:
        """Waiting for a replica."""
        ...

    @property
    def active(self) -> int:
        """Passed on, not yet answered."""
        ...


class ActivatorLoad(Protocol):
    """What the activator holds, pushed by it."""

    def load(self, key: Key) -> LoadView:
        """The load of a revision, as last heard."""
        ...

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        ...


class PodScraper:
    """`GET http://HOST:MANAGEMENT_PORT/stats` over kept connections, with a deadline and a cap on bytes."""

    def __init__(self, clock: Clock, sampling: Sampling | None = None) -> None:
        self._clock = clock
        self._sampling = sampling or Sampling()
        self._session: aiohttp.ClientSession | None = None

    async def sample(self, endpoint: Endpoint) -> Sample:
        """The replica's reading now. Raises NoSample or BadSample."""
        url = f"http://{endpoint.host}:{endpoint.management_port}/stats"
        try:
            async with self._open().get(url, allow_redirects=False) as response:
                if response.status != HTTP_OK:
                    raise NoSample(f"{endpoint.pod}: {url} answered {response.status}")
                body = await self._read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoSample(f"{endpoint.pod}: {url} did not answer: {error or type(error).__name__}") from error
        return parse_stats(body, self._clock.monotonic())

    async def close(self) -> None:
        """Close all connections; the next sample opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        """The session, made in the loop that uses it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=self._sampling.timeout),
                auto_decompress=False,
            )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._sampling.max_bytes:
                response.close()
                raise BadSample(f"/stats answered more than {self._sampling.max_bytes} bytes")
        return bytes(body)
