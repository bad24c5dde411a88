"""Record decisions, starts and the digest of each revision in annotations of its PodAutoscaler.

The lists are bounded. They are written only when they change, and at most once in `write_interval`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoscaler.apis import DECISIONS_ANNOTATION, LOADED_ANNOTATION, Entry, read_notes
from autoscaler.config import Records
from autoscaler.scaling.fleet import Change
from autoscaler.scaling.replay import INPUTS_ANNOTATION
from autoscaler.warmpool.marks import ANNOTATION_STARTS
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.errors import ClusterError
from clusters.objects import POD_AUTOSCALER, Key, Object, annotations_of, key_of, timestamp, version_of

Lists = dict[str, list[Entry]]  # annotation → entries, oldest first


class Notes:
    """Decisions and starts not yet written, by revision."""

    def __init__(self, cluster: Cluster, clock: Clock, records: Records, manager: str) -> None:
        self._cluster = cluster
        self._clock = clock
        self._interval = records.write_interval
        self._kept = {
            DECISIONS_ANNOTATION: records.kept_decisions,
            INPUTS_ANNOTATION: records.kept_inputs,
            ANNOTATION_STARTS: records.kept_starts,
        }
        self._manager = manager
        self._pending: dict[Key, Lists] = {}
        self._written: dict[Key, tuple[float, Lists]] = {}
        self._digests: dict[Key, str] = {}

    def add_decision(self, change: Change) -> None:
        """Note a decision."""
        entry = {
            "at": timestamp(self._clock.now()),
            "from": change.before,
            "to": change.desired,
            "reasons": [reason.to_json() for reason in change.reasons],
        }
        self._add(change.key, DECISIONS_ANNOTATION, entry)
        if change.inputs:
            told = {name: entry[name] for name in ("at", "from", "to")}
            self._add(change.key, INPUTS_ANNOTATION, {**told, **change.inputs})

    def add_start(self, key: Key, entry: Mapping[str, Any]) -> None:
        """Note a start of a replica (`reconciler/starts.py`)."""
        self._add(key, ANNOTATION_STARTS, dict(entry))

    def add_digest(self, key: Key, digest: str) -> bool:
        """Note what a replica loaded, unless an earlier one was noted; whether it is new to this process."""
        if not digest or key in self._digests:
            return False
        self._digests[key] = digest
        return True

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self._digests.pop(key, None)
        self._pending.pop(key, None)
        self._written.pop(key, None)

    async def write(self, pod_autoscaler: Object) -> float | None:
        """Write what is noted; returns the seconds to wait when the last write is too recent. Raises as the cluster.

        The digest is written once for all processes: `pod_autoscaler` may be older than what another one wrote.
        """
        key = key_of(pod_autoscaler)
        pending, digest = self._pending.get(key) or {}, self._digests.get(key, "")
        is_loaded = bool(digest) and LOADED_ANNOTATION not in annotations_of(pod_autoscaler)
        if not pending and not is_loaded:
            return None
        at, written = self._written.get(key) or (float("-inf"), {})
        rest = at + self._interval - self._clock.monotonic()
        if rest > 0.0 and not is_loaded:
            return rest
        metadata: Object = {}
        if is_loaded:
            present = await self._cluster.get(POD_AUTOSCALER, key.name, key.namespace)
            is_loaded = LOADED_ANNOTATION not in annotations_of(present)
            metadata["resourceVersion"] = version_of(present)
        lists = {name: self._joined(pod_autoscaler, written, name, added) for name, added in pending.items()}
        texts = {name: json.dumps(some, separators=(",", ":"), ensure_ascii=False) for name, some in lists.items()}
        metadata["annotations"] = texts | ({LOADED_ANNOTATION: digest} if is_loaded else {})
        if not metadata["annotations"]:
            return None
        self._pending.pop(key, None)  # what is added while this is written is written next
        try:
            await self._cluster.patch(
                POD_AUTOSCALER, key.name, {"metadata": metadata}, key.namespace, manager=self._manager
            )
        except ClusterError:
            self._put_back(key, pending)
            raise
        self._written[key] = (self._clock.monotonic(), written | lists)
        return None

    def _add(self, key: Key, annotation: str, entry: Entry) -> None:
        pending = self._pending.setdefault(key, {}).setdefault(annotation, [])
        pending.append(entry)
        del pending[: -self._kept[annotation]]

    def _joined(self, pod_autoscaler: Object, written: Lists, name: str, added: list[Entry]) -> list[Entry]:
        former = written[name] if name in written else read_notes(pod_autoscaler, name)
        return [*former, *added][-self._kept[name] :]

    def _put_back(self, key: Key, pending: Lists) -> None:
        later = self._pending.setdefault(key, {})
        for name, entries in pending.items():
            later[name] = [*entries, *later.get(name, [])]
