"""The decisions of each revision, written where people look: an annotation on its PodAutoscaler.

Bounded, on change only, and not more often than `write_interval`: what comes in between is written together.
"""

from __future__ import annotations

import json
from typing import Any

from autoscaler.apis import DECISIONS_ANNOTATION
from autoscaler.config import Records
from autoscaler.scaling.fleet import Change
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.errors import ClusterError
from clusters.objects import POD_AUTOSCALER, Key, Object, annotations_of, key_of, timestamp

Entry = dict[str, Any]


def read_decisions(pod_autoscaler: Object) -> list[Entry]:
    """The decisions written on it, oldest first; none when the annotation is absent or not ours."""
    try:
        entries = json.loads(annotations_of(pod_autoscaler).get(DECISIONS_ANNOTATION, "[]"))
    except ValueError:
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


class DecisionLog:
    """Decisions not yet written, by revision."""

    def __init__(self, cluster: Cluster, clock: Clock, records: Records, manager: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._records = records
        self._manager = manager
        self._pending: dict[Key, list[Entry]] = {}
        self._written: dict[Key, tuple[float, list[Entry]]] = {}

    def add(self, change: Change) -> None:
        """Note one."""
        entry = {
            "at": timestamp(self._clock.now()),
            "from": change.before,
            "to": change.desired,
            "reasons": [reason.to_json() for reason in change.reasons],
        }
        pending = self._pending.setdefault(change.key, [])
        pending.append(entry)
        del pending[: -self._records.kept_decisions]

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self._pending.pop(key, None)
        self._written.pop(key, None)

    async def write(self, pod_autoscaler: Object) -> float | None:
        """Write what is noted; returns the seconds to wait when the last write is too recent. Raises as the cluster."""
        key = key_of(pod_autoscaler)
        pending = self._pending.get(key)
        if not pending:
            return None
        at, entries = self._written.get(key) or (float("-inf"), read_decisions(pod_autoscaler))
        rest = at + self._records.write_interval - self._clock.monotonic()
        if rest > 0.0:
            return rest
        entries = [*entries, *pending][-self._records.kept_decisions :]
        text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
        patch = {"metadata": {"annotations": {DECISIONS_ANNOTATION: text}}}
        del self._pending[key]  # what is added while this is written is written next
        try:
            await self._cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=self._manager)
        except ClusterError:
            self._pending[key] = [*pending, *self._pending.get(key, [])]
            raise
        self._written[key] = (self._clock.monotonic(), entries)
        return None
