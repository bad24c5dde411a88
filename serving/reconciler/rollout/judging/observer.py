"""Read the request counts of revisions from the management ports of their Pods, at each judgement.

Pods are listed each time instead of watched: judgements are seconds apart, and only the revisions of running rollouts
matter. A container other than Knodel's model server has no such page; then there are no counts, and the judge waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from autoscaler.metrics.pod_http import PodAddress, PodResponse
from autoscaler.metrics.stat import BadSample, NoSample
from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import LABEL_REVISION, POD, key_of, labels_of
from clusters.net.endpoints import Endpoint, endpoint_of
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import (
    BadReading,
    Reading,
    Seen,
    answered_since,
    parse_reading,
    remembered,
)

log = logging.getLogger(__name__)

PAGE: Final = "/stats/answers"
TIMEOUT: Final = 1.0
"""s for one answer, the shortest interval of judgements: a Pod that hangs delays a pass by no more."""
MAX_BYTES: Final = 65_536
"""Bytes of one answer: four times 257 buckets of at most 24 bytes, and some totals."""
MOST_KEPT: Final = 10_000
"""Rollouts whose last readings are kept; the one unread for the longest time is dropped first."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a Pod whose address another Pod may have by now."""


class Pages(Protocol):
    """A client for small pages of Pods (`autoscaler.metrics.pod_http`)."""

    async def get(self, address: PodAddress, path: str, max_bytes: int) -> PodResponse:
        """Return the page. Raises NoSample, BadSample."""
        ...


class PodObserver:
    """Observes revisions through their Pods; `pages` runs in the caller's event loop."""

    def __init__(self, cluster: Cluster, pages: Pages) -> None:
        self._cluster = cluster
        self._pages = pages
        self._last: OrderedDict[str, Seen] = OrderedDict()

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """Return the counts of each revision since the last reading for this rollout; nothing at the first reading.

        Revisions that cannot be read are left out. Raises nothing for them.
        """
        selector = f"{LABEL_REVISION} in ({','.join(sorted(revisions))})"
        try:
            found = (await self._cluster.list(POD, namespace, selector)).items
        except ClusterError as error:
            log.warning("cannot list the Pods of %s: %s", ", ".join(sorted(revisions)), error)
            return {}
        pods = [pod for pod in found if (pod.get("status") or {}).get("phase") not in ENDED]  # ready or not
        reached = [(endpoint, pod) for pod in pods if (endpoint := endpoint_of(pod)) is not None]
        readings = await asyncio.gather(
            *(self._read(endpoint, labels_of(pod)[LABEL_REVISION]) for endpoint, pod in reached)
        )
        seen = {endpoint.pod: reading for (endpoint, _), reading in zip(reached, readings, strict=True)}
        former = self._last.get(rollout)
        self._last[rollout] = remembered(former, seen, {str(key_of(pod)) for pod in pods})
        self._last.move_to_end(rollout)
        if len(self._last) > MOST_KEPT:
            self._last.popitem(last=False)
        return answered_since(former, seen)

    def forget(self, rollout: str) -> None:
        """Drop the last readings, so that the next reading for this rollout is the first one."""
        self._last.pop(rollout, None)

    async def _read(self, endpoint: Endpoint, revision: str) -> Reading | None:
        """Return the reading of a replica; None without an answer, or when another revision has the address."""
        address = PodAddress(endpoint.pod, endpoint.host, endpoint.management_port)
        try:
            reading = parse_reading((await self._pages.get(address, PAGE, MAX_BYTES)).body)
        except (NoSample, BadSample, BadReading) as error:
            log.debug("%s: %s", endpoint.pod, error)
            return None
        return reading if reading.revision == revision else None
