"""The interfaces through which the autoscaler measures load, and the scraper of our model server.

`MetricSource` reads one replica; `ActivatorLoad` reads the requests queued or active at activators. Both exist for
every cluster; the composition root chooses the implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autoscaler.config import Sampling
from autoscaler.metrics.digest_page import MAX_BYTES as DIGEST_BYTES
from autoscaler.metrics.digest_page import WAIT, LoadedDigest, read_loaded
from autoscaler.metrics.pod_http import PodAddress, PodHttpClient
from autoscaler.metrics.progress import read_progress
from autoscaler.metrics.response_latency import MAX_BYTES as LATENCY_BYTES
from autoscaler.metrics.response_latency import LatencyTotals, parse_latency_totals
from autoscaler.metrics.stat import NoPage, NoSample, Sample, parse_stats
from clusters.base.clock import Clock
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint


class MetricSource(Protocol):
    """A source of replicas' readings."""

    async def sample(self, endpoint: Endpoint) -> Sample:
        """Return the replica's current reading. Raises NoSample or BadSample."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class LoadView(Protocol):
    """Requests of one revision at activators."""

    @property
    def queued(self) -> int:
        """Requests that wait for a replica."""
        ...

    @property
    def active(self) -> int:
        """Requests that were forwarded and not yet answered."""
        ...


class ActivatorLoad(Protocol):
    """The requests at activators, which are pushed by them or polled."""

    def load(self, key: Key) -> LoadView:
        """Return the requests of a revision, by the latest data."""
        ...

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        ...

    async def refresh(self) -> bool:
        """Update `load`. Return False when the data of some activator could not be updated."""
        ...


class PodScraper:
    """Readings of our model server: `GET http://HOST:MANAGEMENT_PORT/stats`."""

    def __init__(self, clock: Clock, sampling: Sampling | None = None) -> None:
        self._clock = clock
        self._sampling = sampling or Sampling()
        self._pages = PodHttpClient(self._sampling.timeout)
        self._waiting = PodHttpClient(WAIT + self._sampling.timeout)

    async def sample(self, endpoint: Endpoint) -> Sample:
        """Return the replica's current reading. Raises NoSample or BadSample; NoPage when the Pod has no server of
        ours.
        """
        return parse_stats(await self._stats(endpoint), self._clock.monotonic())

    async def progress(self, endpoint: Endpoint) -> str:
        """Return the progress of the replica's start as text. Raises the errors of `sample`."""
        return read_progress(await self._stats(endpoint))

    async def answers(self, endpoint: Endpoint) -> LatencyTotals:
        """Return the totals of its response times (`GET …/stats/answers`). Raises the errors of `sample`."""
        return parse_latency_totals((await self._pages.get(_address(endpoint), "/stats/answers", LATENCY_BYTES)).body)

    async def loaded(self, endpoint: Endpoint) -> LoadedDigest:
        """Return the digest of the replica's files when it is known, or after WAIT seconds. Raises the errors of
        `sample`.
        """
        return read_loaded((await self._waiting.get(_address(endpoint), f"/digest?wait={WAIT}", DIGEST_BYTES)).body)

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        """Send the recorded digest, which lets the replica become ready. Raises the errors of `sample`, also when it is
        rejected.
        """
        await self._pages.put(_address(endpoint), "/digest", {"digest": digest}, DIGEST_BYTES)

    async def close(self) -> None:
        """Close all connections; the next sample opens new ones."""
        await self._pages.close()
        await self._waiting.close()

    async def _stats(self, endpoint: Endpoint) -> bytes:
        return (await self._pages.get(_address(endpoint), "/stats", self._sampling.max_bytes)).body


def _address(endpoint: Endpoint) -> PodAddress:
    return PodAddress(endpoint.pod, endpoint.host, endpoint.management_port)


__all__ = ["ActivatorLoad", "LoadView", "MetricSource", "NoPage", "NoSample", "PodScraper"]
