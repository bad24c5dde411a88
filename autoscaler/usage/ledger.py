"""The usage accounts of all revisions, and their storage.

An account is written as an annotation at most once per `usage_interval`, and only when it changed. A new process
continues from the annotation. When a revision is deleted, another revision of the same Configuration takes over its
usage.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

from autoscaler.config import Records
from autoscaler.metrics.stat import Sample
from autoscaler.usage.account import Account, ClockReading, is_held, replica_of
from autoscaler.usage.gpu_types import GpuTypes
from autoscaler.usage.meter import CANARY_ANNOTATION, USAGE_ANNOTATION, read_usage
from autoscaler.usage.signals import SIGNALS_ANNOTATION, to_annotation
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import (
    LABEL_CONFIGURATION,
    POD_AUTOSCALER,
    Key,
    Kind,
    Object,
    annotations_of,
    key_of,
    labels_of,
)


class UsageLedger:
    """Accounts by revision."""

    def __init__(self, cluster: Cluster, clock: Clock, records: Records, manager: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._interval = records.usage_interval
        self._manager = manager
        self._accounts: dict[Key, Account] = {}
        self._groups: dict[str, list[Account]] = {}
        self._gpu_types = GpuTypes(cluster, clock)

    async def learn_gpu_types(self, pods: Iterable[Object]) -> None:
        """Read the types of the GPUs that the Pods of a revision have, before `observe`."""
        await self._gpu_types.learn(filter(is_held, pods))

    def observe(self, pod_autoscaler: Object, deployment: Object, pods: Iterable[Object]) -> None:
        """Record the state of a revision at the beginning of a pass."""
        key, present = key_of(pod_autoscaler), list(pods)
        held = list(filter(is_held, present))
        if (account := self._accounts.get(key)) is None:
            configuration = labels_of(pod_autoscaler).get(LABEL_CONFIGURATION)
            group = f"{key.namespace}/{configuration}" if configuration else ""
            replica = self._gpu_types.with_types(replica_of(deployment["spec"]["template"]), held)
            account = self._accounts[key] = Account(read_usage(pod_autoscaler), group, replica)
            phase = zlib.crc32(str(key).encode()) / 2**32  # so that accounts are not written together after a start
            account.saved_at = self._clock.monotonic() - self._interval * phase
            self._groups.setdefault(group, []).append(account)
        elif (replica := self._gpu_types.with_types(account.replica, held)) != account.replica:
            account.resize(replica, self._now())
        account.observe(present, self._now(), canary=annotations_of(pod_autoscaler).get(CANARY_ANNOTATION) == "true")

    def record_readings(self, keys: Iterable[Key], last: Callable[[Key], Mapping[str, Sample]]) -> list[Key]:
        """Record the readings of these revisions. Return those whose account must be written."""
        now, due = self._now(), []
        for key in keys:
            if (account := self._accounts.get(key)) is not None:
                account.record_readings(last(key), now)
                if account.due(now, self._interval) == 0.0:
                    due.append(key)
        return due

    def record_claim(self, key: Key) -> None:
        """Record one more replica of the revision from a warm pool."""
        if (account := self._accounts.get(key)) is not None:
            account.record_claim(self._now())

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        gone = self._accounts.pop(key, None)
        if gone is None:
            return
        gone.allocate(self._now())
        siblings = self._groups.get(gone.group, [])
        siblings.remove(gone)
        if siblings and gone.group:
            siblings[-1].absorb(gone)
        elif not siblings:
            del self._groups[gone.group]

    async def write(self, pod_autoscaler: Object) -> float | None:
        """Write the account if it is due. Return the seconds until the next write for revisions without ticks, or None.

        Raises the cluster's errors.
        """
        key = key_of(pod_autoscaler)
        account = self._accounts.get(key)
        if account is None or (wait := account.due(self._now(), self._interval)) is None:
            return None
        if wait <= 0.0:
            await save(account, self._cluster, POD_AUTOSCALER, key, self._manager, self._now())
            wait = account.due(self._now(), self._interval)
        return wait if not account.ready else None

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.now())


async def save(account: Account, cluster: Cluster, kind: Kind, key: Key, manager: str, now: ClockReading) -> None:
    """Write an account to its object. Raises the cluster's errors."""
    changes = account.changes
    annotations = {USAGE_ANNOTATION: account.usage.to_json()}
    if account.signals is not None:
        annotations[SIGNALS_ANNOTATION] = to_annotation(account.signals, now.wall)
    patch = {"metadata": {"annotations": annotations}}
    await cluster.patch(kind, key.name, patch, key.namespace, manager=manager)
    account.saved, account.saved_at = changes, now.monotonic
