"""Where readings come from: the two narrow interfaces that the autoscaler needs of the outer world, and the scraper.

`MetricSource` answers for one replica, `ActivatorLoad` for the requests that wait or pass at the activator. Both hold
on every cluster; which implementation is used is the composition root's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autoscaler.config import Sampling
from autoscaler.metrics.answers import MAX_BYTES as ANSWERS_BYTES
from autoscaler.metrics.answers import Answers, parse_answers
from autoscaler.metrics.digest_page import MAX_BYTES as DIGEST_BYTES
from autoscaler.metrics.digest_page import WAIT, Loaded, read_loaded
from autoscaler.metrics.pages import Address, Pages
from autoscaler.metrics.progress import read_progress
from autoscaler.metrics.stat import NoPage, NoSample, Sample, parse_stats
from clusters.base.clock import Clock
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint


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
    """What the activators hold: pushed by them, or asked for all the time."""

    def load(self, key: Key) -> LoadView:
        """The load of a revision, as last heard."""
        ...

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        ...

    async def refresh(self) -> bool:
        """Have `load` tell what is held now, or later; False where that is not known of every activator."""
        ...


class PodScraper:
    """`GET http://HOST:MANAGEMENT_PORT/stats` of our model server."""

    def __init__(self, clock: Clock, sampling: Sampling | None = None) -> None:
        self._clock = clock
        self._sampling = sampling or Sampling()
        self._pages = Pages(self._sampling.timeout)
        self._waiting = Pages(WAIT + self._sampling.timeout)

    async def sample(self, endpoint: Endpoint) -> Sample:
        """The replica's reading now. Raises NoSample or BadSample; NoPage when it is no server of ours."""
        return parse_stats(await self._stats(endpoint), self._clock.monotonic())

    async def progress(self, endpoint: Endpoint) -> str:
        """How far the replica's start is, for people. Raises as `sample`."""
        return read_progress(await self._stats(endpoint))

    async def answers(self, endpoint: Endpoint) -> Answers:
        """How long its answers took, as totals (`GET …/stats/answers`). Raises as `sample`."""
        return parse_answers((await self._pages.get(_address(endpoint), "/stats/answers", ANSWERS_BYTES)).body)

    async def loaded(self, endpoint: Endpoint) -> Loaded:
        """Return what the replica loads, as soon as that is known, or after WAIT seconds. Raises as `sample`."""
        return read_loaded((await self._waiting.get(_address(endpoint), f"/digest?wait={WAIT}", DIGEST_BYTES)).body)

    async def confirm(self, endpoint: Endpoint, digest: str) -> None:
        """Send the recorded digest, which lets the replica become ready. Raises as `sample`, also where it refuses."""
        await self._pages.put(_address(endpoint), "/digest", {"digest": digest}, DIGEST_BYTES)

    async def close(self) -> None:
        """Close all connections; the next sample opens new ones."""
        await self._pages.close()
        await self._waiting.close()

    async def _stats(self, endpoint: Endpoint) -> bytes:
        return (await self._pages.get(_address(endpoint), "/stats", self._sampling.max_bytes)).body


def _address(endpoint: Endpoint) -> Address:
    return Address(endpoint.pod, endpoint.host, endpoint.management_port)


__all__ = ["ActivatorLoad", "LoadView", "MetricSource", "NoPage", "NoSample", "PodScraper"]
