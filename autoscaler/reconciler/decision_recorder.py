"""Record decisions and starts in annotations of each revision's PodAutoscaler.

The lists are bounded. They are written only when they change, and at most once per `write_interval`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.config import Records
from autoscaler.metrics.revision_page import ScalingCounts
from autoscaler.scaling.multi_scaler import Change
from autoscaler.scaling.replay import INPUTS_ANNOTATION
from autoscaler.types import DECISIONS_ANNOTATION, Entry, read_entries
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError
from clusters.base.objects import POD_AUTOSCALER, Key, Object, key_of, timestamp
from clusters.runtime.informer import Informer

MS: Final = 1000.0  # milliseconds in a second
Lists = dict[str, list[Entry]]  # annotation → entries, oldest first


class DecisionRecorder:
    """Decisions and starts that are not yet written, by revision."""

    def __init__(
        self, cluster: Cluster, pod_autoscalers: Informer, clock: Clock, records: Records, manager: str
    ) -> None:
        self._cluster = cluster
        self._own_writes = pod_autoscalers.own_writes
        self._clock = clock
        self._interval = records.write_interval
        self._kept = {
            DECISIONS_ANNOTATION: records.kept_decisions,
            INPUTS_ANNOTATION: records.kept_inputs,
            ANNOTATION_STARTS: records.kept_starts,
        }
        self._manager = manager
        self._pending: dict[Key, Lists] = {}
        self._written_at: dict[Key, float] = {}
        self.counts = ScalingCounts()

    def add_decision(self, change: Change) -> None:
        """Record a decision."""
        entry = {
            "at": timestamp(self._clock.now()),
            "from": change.before,
            "to": change.desired,
            "reasons": [reason.to_json() for reason in change.reasons],
        }
        self._add(change.key, DECISIONS_ANNOTATION, entry)
        if change.reasons:
            self.counts.record_decision(change.reasons[-1].rule.value)
        if change.inputs:
            head = {name: entry[name] for name in ("at", "from", "to")}
            self._add(change.key, INPUTS_ANNOTATION, {**head, **change.inputs})

    def add_start(self, key: Key, entry: Mapping[str, Any]) -> None:
        """Record a start of a replica (`reconciler/starts.py`)."""
        self._add(key, ANNOTATION_STARTS, dict(entry))
        if entry.get("steps"):  # this process saw it
            self.counts.record_start(str(entry["kind"]), float(entry["milliseconds"]) / MS)

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self._pending.pop(key, None)
        self._written_at.pop(key, None)

    async def write(self, pod_autoscaler: Object) -> float | None:
        """Write the recorded entries. Return the seconds to wait when the last write is too recent. Raises the
        cluster's errors.
        """
        key = key_of(pod_autoscaler)
        pending = self._pending.get(key) or {}
        if not pending:
            return None
        left = self._written_at.get(key, -math.inf) + self._interval - self._clock.monotonic()
        if left > 0.0:
            return left
        latest, texts = self._own_writes.latest(pod_autoscaler), {}
        for name, added in pending.items():
            entries = [*read_entries(latest, name), *added][-self._kept[name] :]
            texts[name] = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
        self._pending.pop(key, None)  # entries added during the write are written next
        try:
            patch = {"metadata": {"annotations": texts}}
            written = await self._cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=self._manager)
        except ClusterError:
            later = self._pending.setdefault(key, {})
            for name, entries in pending.items():
                later[name] = [*entries, *later.get(name, [])]
            raise
        self._own_writes.record(written)
        self._written_at[key] = self._clock.monotonic()
        return None

    def _add(self, key: Key, annotation: str, entry: Entry) -> None:
        pending = self._pending.setdefault(key, {}).setdefault(annotation, [])
        pending.append(entry)
        del pending[: -self._kept[annotation]]
