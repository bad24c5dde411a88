"""The usage of the free members of warm pools: an account for each pool, written on the WarmPool.

Free members are those that no revision has claimed; claimed ones belong to the revision's account.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from autoscaler.config import Records
from autoscaler.usage.account import Account, ClockReading, replica_of
from autoscaler.usage.gpu_types import GpuTypes
from autoscaler.usage.ledger import save
from autoscaler.usage.meter import read_usage
from autoscaler.warmpool.claims.marks import LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.base.objects import WARM_POOL, Key, Object, key_of, labels_of, namespace_of
from clusters.runtime.informer import Informer

log = logging.getLogger(__name__)


class PoolUsageLedger:
    """Accounts by WarmPool; `on_pod` observes every change of a member, `run` writes."""

    def __init__(self, cluster: Cluster, pools: Informer, clock: Clock, records: Records, manager: str) -> None:
        self._cluster = cluster
        self._pools = pools
        self._clock = clock
        self._interval = records.usage_interval
        self._manager = manager
        self._members: dict[Key, dict[Key, Object]] = {}  # pool → its free members
        self._accounts: dict[Key, Account] = {}
        self._gpu_types = GpuTypes(cluster, clock)

    def on_pod(self, before: Object | None, after: Object | None) -> None:
        """Observe a changed member; for `Informer.subscribe`."""
        pod = after or before
        if pod is None or (name := labels_of(before or pod).get(LABEL_POOL, labels_of(pod).get(LABEL_POOL))) is None:
            return
        pool = Key(namespace_of(pod), name)
        members = self._members.setdefault(pool, {})
        if after is None or is_claimed(after) or labels_of(after).get(LABEL_POOL) != name:
            members.pop(key_of(pod), None)
        else:
            members[key_of(pod)] = after
        if (account := self._accounts.get(pool)) is not None:
            self._observe(account, members)

    async def run(self) -> None:
        """Write due accounts until cancelled."""
        while True:
            await self.write()
            await self._clock.sleep(self._interval)

    async def write(self) -> None:
        """Write every due account. Rejected writes are retried the next time."""
        for pool in list(self._members):
            found = self._pools.get(pool.name, pool.namespace)
            if found is None:
                self._accounts.pop(pool, None)
                if not self._members[pool]:
                    del self._members[pool]
                continue
            await self._gpu_types.learn(list(self._members[pool].values()))
            if (account := self._accounts.get(pool)) is None:
                account = self._accounts[pool] = Account(read_usage(found))
            self._observe(account, self._members[pool])
            if account.due(self._now(), self._interval) != 0.0:
                continue
            try:
                await save(account, self._cluster, WARM_POOL, pool, self._manager, self._now())
            except ClusterError as error:
                log.warning("cannot write the usage of warm pool %s: %s", pool, error)

    def _observe(self, account: Account, members: Mapping[Key, Object]) -> None:
        """Update the account; the newest member determines the size, since members of an old template are soon
        replaced.
        """
        now = self._now()
        if members:
            newest = next(reversed(list(members.values())))
            account.resize(self._gpu_types.with_types(replica_of(newest), [newest]), now)
        account.observe(members.values(), now)

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.now())
