"""Sees what revisions answer: asks the management ports of their Pods at each look of the judge.

The Pods are listed then and not watched: looks are seconds apart, and only the revisions of rollouts that run matter.
A container that is no server of ours has no such page; then nothing is seen, and the judge waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from autoscaler.metrics.pages import Address, Answer
from autoscaler.metrics.stat import BadSample, NoSample
from clusters.base.api import Cluster
from clusters.base.errors import ClusterError
from clusters.base.objects import LABEL_REVISION, POD, Object, key_of, labels_of
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
"""s for one answer, the shortest time between two looks: a Pod that hangs delays a pass by no more."""
MAX_BYTES: Final = 65_536
"""Bytes of one answer: three times 257 buckets of at most 24 bytes, and some totals."""
MOST_KEPT: Final = 10_000
"""Rollouts remembered; the longest unread one goes first."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a Pod whose address another one may have by now."""


class Pages(Protocol):
    """Small pages of Pods, as `autoscaler.metrics.pages` gets them."""

    async def get(self, address: Address, path: str, max_bytes: int) -> Answer:
        """The page. Raises NoSample, BadSample."""
        ...


class PodObserver:
    """What revisions answered, by their Pods; `pages` are asked in the caller's loop."""

    def __init__(self, cluster: Cluster, pages: Pages) -> None:
        self._cluster = cluster
        self._pages = pages
        self._last: OrderedDict[str, Seen] = OrderedDict()

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """What each of these revisions answered since they were last read for this rollout; nothing at the first time.

        What cannot be read is left out; raises nothing for it.
        """
        try:
            pods = await self._pods(namespace, revisions)
        except ClusterError as error:
            log.warning("the Pods of %s are not seen: %s", ", ".join(sorted(revisions)), error)
            return {}
        reached = [(endpoint, pod) for pod in pods if (endpoint := endpoint_of(pod)) is not None]
        readings = await asyncio.gather(*(self._read(endpoint, _revision_of(pod)) for endpoint, pod in reached))
        seen = {endpoint.pod: reading for (endpoint, _), reading in zip(reached, readings, strict=True)}
        former = self._last.get(rollout)
        self._keep(rollout, remembered(former, seen, {str(key_of(pod)) for pod in pods}))
        return answered_since(former, seen)

    def forget(self, rollout: str) -> None:
        """The next reading for this rollout is the first one."""
        self._last.pop(rollout, None)

    async def _pods(self, namespace: str, revisions: Collection[str]) -> Sequence[Object]:
        """Those that may answer now or later, ready or not. Raises ClusterError."""
        selector = f"{LABEL_REVISION} in ({','.join(sorted(revisions))})"
        pods = (await self._cluster.list(POD, namespace, selector)).items
        return [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]

    async def _read(self, endpoint: Endpoint, revision: str) -> Reading | None:
        """None where nobody answers, or another revision's replica: the address is not, or no longer, this one's."""
        address = Address(endpoint.pod, endpoint.host, endpoint.management_port)
        try:
            reading = parse_reading((await self._pages.get(address, PAGE, MAX_BYTES)).body)
        except (NoSample, BadSample, BadReading) as error:
            log.debug("%s: %s", endpoint.pod, error)
            return None
        return reading if reading.revision == revision else None

    def _keep(self, rollout: str, seen: Seen) -> None:
        self._last[rollout] = seen
        self._last.move_to_end(rollout)
        if len(self._last) > MOST_KEPT:
            self._last.popitem(last=False)


def _revision_of(pod: Object) -> str:
    return labels_of(pod)[LABEL_REVISION]
