"""The accounts of all revisions and warm pools, and their writing: what the autoscaler does for the bill.

An account is written as an annotation at most once in `usage_interval`, and only when it changed; a process that starts
goes on from what is written. When a revision is gone, a sibling of the same Configuration takes its bill over.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

from autoscaler.config import Records
from autoscaler.metrics.stat import Sample
from autoscaler.usage.account import Account, Moment, replica_of
from autoscaler.usage.meter import CANARY_ANNOTATION, USAGE_ANNOTATION, read_usage
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
    namespace_of,
)


class Ledger:
    """Accounts by revision."""

    def __init__(self, cluster: Cluster, clock: Clock, records: Records, manager: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._interval = records.usage_interval
        self._manager = manager
        self._accounts: dict[Key, Account] = {}
        self._groups: dict[str, list[Account]] = {}

    def see(self, pod_autoscaler: Object, deployment: Object, pods: Iterable[Object]) -> None:
        """The revision as a pass has found it."""
        account = self._accounts.get(key_of(pod_autoscaler)) or self._open(pod_autoscaler, deployment)
        account.see(pods, self._now(), canary=annotations_of(pod_autoscaler).get(CANARY_ANNOTATION) == "true")

    def heard(self, keys: Iterable[Key], last: Callable[[Key], Mapping[str, Sample]]) -> list[Key]:
        """The replicas of these revisions were read; returns those whose account is due to be written."""
        now, due = self._now(), []
        for key in keys:
            if (account := self._accounts.get(key)) is not None:
                account.hear(last(key), now)
                if account.due(now, self._interval) == 0.0:
                    due.append(key)
        return due

    def claimed(self, key: Key) -> None:
        """One more replica of the revision came out of a warm pool."""
        if (account := self._accounts.get(key)) is not None:
            account.claim(self._now())

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        gone = self._accounts.pop(key, None)
        if gone is None:
            return
        gone.settle(self._now())
        siblings = self._groups.get(gone.group, [])
        siblings.remove(gone)
        if siblings and gone.group:
            siblings[-1].inherit(gone)
        elif not siblings:
            del self._groups[gone.group]

    async def write(self, pod_autoscaler: Object) -> float | None:
        """Write the account where it is due; seconds until a look where no tick looks. Raises as the cluster."""
        key = key_of(pod_autoscaler)
        account = self._accounts.get(key)
        if account is None or (wait := account.due(self._now(), self._interval)) is None:
            return None
        if wait <= 0.0:
            await save(account, self._cluster, POD_AUTOSCALER, key, self._manager, self._now())
            wait = account.due(self._now(), self._interval)
        return wait if not account.ready else None

    def _open(self, pod_autoscaler: Object, deployment: Object) -> Account:
        configuration = labels_of(pod_autoscaler).get(LABEL_CONFIGURATION)
        group = f"{namespace_of(pod_autoscaler)}/{configuration}" if configuration else ""
        replica = replica_of(deployment["spec"]["template"].get("spec") or {})
        key = key_of(pod_autoscaler)
        account = self._accounts[key] = Account(read_usage(pod_autoscaler), group, replica)
        account.saved_at = self._clock.monotonic() - self._interval * _phase(key)
        self._groups.setdefault(group, []).append(account)
        return account

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.now())


def _phase(key: Key) -> float:
    """From 0 to 1, another for each revision: after a start of the autoscaler not all are written at once."""
    return zlib.crc32(str(key).encode()) / 2**32


async def save(account: Account, cluster: Cluster, kind: Kind, key: Key, manager: str, now: Moment) -> None:
    """Write an account to its object. Raises as the cluster."""
    changes = account.changes
    patch = {"metadata": {"annotations": {USAGE_ANNOTATION: account.usage.to_json()}}}
    await cluster.patch(kind, key.name, patch, key.namespace, manager=manager)
    account.saved, account.saved_at = changes, now.monotonic
