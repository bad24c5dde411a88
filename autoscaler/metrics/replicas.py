"""Readings of the replicas of any Knative revision: from our model server if the Pod has one, else from queue-proxy.

The first read tries both sources. Our server's totals are exact and count slots; queue-proxy's count requests, a second
late. A Pod without our page is retried after a while, because our server may only have been restarting.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from autoscaler.metrics.source import MetricSource
from autoscaler.metrics.stat import BadSample, NoPage, NoSample, Sample
from clusters.base.clock import Clock
from clusters.net.endpoints import Endpoint

BELIEVED: Final = 60.0
"""Seconds for which a Pod counts as one without our page."""
MOST_PODS: Final = 20_000  # remembered; the least recently read one is dropped first


@dataclass(frozen=True, slots=True)
class _Choice:
    """The source of a Pod's readings, and until when it applies."""

    source: MetricSource
    until: float


class ReplicaSource:
    """A `MetricSource` that combines two: `server` (our /stats) and `proxy` (queue-proxy)."""

    def __init__(self, server: MetricSource, proxy: MetricSource, clock: Clock) -> None:
        self._server = server
        self._proxy = proxy
        self._clock = clock
        self._choices: OrderedDict[str, _Choice] = OrderedDict()

    async def sample(self, endpoint: Endpoint) -> Sample:
        """Return the replica's current reading. Raises NoSample or BadSample."""
        choice = self._choices.get(endpoint.pod)
        if choice is not None and self._clock.monotonic() < choice.until:
            self._choices.move_to_end(endpoint.pod)
            return await choice.source.sample(endpoint)
        return await self._find(endpoint)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(self._server.close(), self._proxy.close())

    async def _find(self, endpoint: Endpoint) -> Sample:
        """Try both sources; a reading of our server takes precedence."""
        own, other = await asyncio.gather(
            self._server.sample(endpoint), self._proxy.sample(endpoint), return_exceptions=True
        )
        for error in (own, other):
            if isinstance(error, BaseException) and not isinstance(error, NoSample | BadSample):
                raise error
        if isinstance(own, Sample):
            self._remember(endpoint.pod, _Choice(self._server, float("inf")))
            return own
        if isinstance(other, Sample):
            if isinstance(own, NoPage):
                self._remember(endpoint.pod, _Choice(self._proxy, self._clock.monotonic() + BELIEVED))
            return other
        raise other if isinstance(own, NoPage) else own

    def _remember(self, pod: str, choice: _Choice) -> None:
        self._choices[pod] = choice
        if len(self._choices) > MOST_PODS:
            self._choices.popitem(last=False)
