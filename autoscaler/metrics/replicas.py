"""Readings of the replicas of any Knative revision: from our model server where it is one, else from queue-proxy.

Which of the two a Pod has shows when it is asked: both at once the first time. Our server's totals are exact and count
slots; queue-proxy's count requests, a second late. A Pod without our page is asked for it again after a while: a
server of ours that was only restarting shall not be taken for another's for ever.
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
"""s that a Pod is taken for one without our page."""
MOST_PODS: Final = 20_000  # remembered; the longest unread one goes first


@dataclass(frozen=True, slots=True)
class _Way:
    """Whom to ask about a Pod, until then."""

    source: MetricSource
    until: float


class ReplicaSource:
    """A `MetricSource` out of two: `server` (our /stats) and `proxy` (queue-proxy)."""

    def __init__(self, server: MetricSource, proxy: MetricSource, clock: Clock) -> None:
        self._server = server
        self._proxy = proxy
        self._clock = clock
        self._ways: OrderedDict[str, _Way] = OrderedDict()

    async def sample(self, endpoint: Endpoint) -> Sample:
        """The replica's reading now. Raises NoSample or BadSample."""
        way = self._ways.get(endpoint.pod)
        if way is not None and self._clock.monotonic() < way.until:
            self._ways.move_to_end(endpoint.pod)
            return await way.source.sample(endpoint)
        return await self._find(endpoint)

    async def close(self) -> None:
        """Let go of connections."""
        await asyncio.gather(self._server.close(), self._proxy.close())

    async def _find(self, endpoint: Endpoint) -> Sample:
        """Ask both; our server's word counts more."""
        own, other = await asyncio.gather(
            self._server.sample(endpoint), self._proxy.sample(endpoint), return_exceptions=True
        )
        for error in (own, other):
            if isinstance(error, BaseException) and not isinstance(error, NoSample | BadSample):
                raise error
        if isinstance(own, Sample):
            self._remember(endpoint.pod, _Way(self._server, float("inf")))
            return own
        if isinstance(other, Sample):
            if isinstance(own, NoPage):
                self._remember(endpoint.pod, _Way(self._proxy, self._clock.monotonic() + BELIEVED))
            return other
        raise other if isinstance(own, NoPage) else own

    def _remember(self, pod: str, way: _Way) -> None:
        self._ways[pod] = way
        if len(self._ways) > MOST_PODS:
            self._ways.popitem(last=False)
