"""The usage account of a revision's Pods, or of a warm pool's free members, from the time they are first seen. Pure.

It observes changes of the Pods and readings of the replicas, and adds up the usage between them. The monotonic clock
measures durations; the wall clock determines the hour.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from autoscaler.gpu.units import part_of_gpu
from autoscaler.metrics.signals import Signals
from autoscaler.metrics.stat import Sample
from autoscaler.usage.meter import BESIDE_ANNOTATION, HOUR, KEPT_HOURS, NOTHING, Replica, Spent, Usage, hours_between
from autoscaler.usage.signals import mean_signals
from autoscaler.usage.tokens import TokenReadings
from autoscaler.warmpool.claims.pods import FINISHED
from autoscaler.warmpool.spec import requests_of
from clusters.base.objects import NVIDIA_GPU, Object, annotations_of, key_of, parse_timestamp
from clusters.base.quantities import THOUSANDTHS, parse_quantity
from clusters.net.endpoints import is_ready

SILENCE: Final = 60.0
"""Seconds without a reading after which ready replicas count as idle. A later reading still covers the time since the
last one.
"""
LONGEST_GAP: Final = timedelta(hours=KEPT_HOURS)
"""Maximum time without an autoscaler that is billed afterwards: as long as hours are kept."""


class ClockReading(NamedTuple):
    """The present time by both clocks."""

    monotonic: float
    wall: datetime


@dataclass(slots=True)
class Account:
    """Usage of one owner of Pods; accounts of the same `group` (a Configuration) share a bill."""

    written: Usage
    group: str = ""
    replica: Replica = field(default_factory=dict)
    canary: bool = False
    held: int = 0
    ready: int = 0
    changes: int = 0  # of the usage, since the start
    saved: int = 0  # value of `changes` at the last write
    saved_at: float = float("-inf")
    signals: Signals | None = None  # of the last readings
    _counted: ClockReading | None = None
    _read_at: float = float("-inf")
    _totals: dict[str, tuple[float, float]] = field(default_factory=dict)
    _tokens: TokenReadings = field(default_factory=TokenReadings)
    _busy: float = 0.0  # pod-seconds with requests, read and not yet allocated
    _fresh: Spent = NOTHING  # of one hour, not yet in `written`
    _fresh_at: datetime | None = None
    _unallocated: float = 0.0  # pod-seconds of ready replicas, not yet divided into serving and idle

    @property
    def usage(self) -> Usage:
        """All usage so far."""
        if self._fresh_at is not None:
            self.written.at = self._fresh_at
            if self._fresh is not NOTHING:
                self.written.meter(self.replica).add(self._fresh, self._fresh_at)
        self._fresh, self._fresh_at = NOTHING, None
        return self.written

    def resize(self, replica: Replica, now: ClockReading) -> None:
        """Set another size of the Pods from now on."""
        self.allocate(now)
        self.written = self.usage  # all usage so far has the former size
        self.replica = replica

    def observe(self, pods: Iterable[Object], now: ClockReading, *, canary: bool = False) -> None:
        """Set the present Pods. The first call also bills the time since the last write."""
        present = list(pods)
        holding = list(filter(is_held, present))
        if self._counted is None:
            self.canary = canary
            self._backfill(holding, now)
        self.count(now)
        self._tokens.watch(str(key_of(pod)) for pod in present)
        self.held, self.ready = len(holding), sum(map(is_ready, holding))
        if not self.ready or canary is not self.canary:
            self.allocate(now)
        self.canary = canary

    def record_readings(self, last: Mapping[str, Sample], now: ClockReading) -> None:
        """Record the last reading of each ready replica: its busy time and tokens since the previous one.

        A replica with several requests at once is busy once: at most for the time that has passed.
        """
        for pod in [pod for pod in self._totals if pod not in last]:
            del self._totals[pod]
        for pod, sample in last.items():
            at, total = self._totals.get(pod, (sample.at, sample.busy_seconds))
            if sample.at > at:
                self._busy += min(max(0.0, sample.busy_seconds - total), sample.at - at)
            self._totals[pod] = sample.at, sample.busy_seconds
        self._read_at = now.monotonic
        self.signals = mean_signals(last.values())
        self.allocate(now)
        grown = self._tokens.growth(last)
        self._add(Spent(prompt_tokens=grown.prompt, completion_tokens=grown.completion), now.wall)

    def count(self, now: ClockReading) -> None:
        """Add the usage since the last call. Later readings divide the time of ready replicas into serving and idle."""
        since = self._counted or now
        self._counted = now
        seconds = max(0.0, now.monotonic - since.monotonic)
        self._unallocated += self.ready * seconds
        self._add(Spent(starting=max(0, self.held - self.ready) * seconds), now.wall)

    def allocate(self, now: ClockReading) -> None:
        """Divide the time of ready replicas: the busy time of the readings is serving, the rest idle."""
        self.count(now)
        busy = min(self._unallocated, self._busy)
        self._add(Spent(serving=busy, idle=self._unallocated - busy), now.wall)
        self._busy = self._unallocated = 0.0

    def record_claim(self, now: ClockReading) -> None:
        """Record one more replica from a warm pool."""
        self._add(Spent(claims=1.0), now.wall)

    def absorb(self, other: Account) -> None:
        """Add the usage of a deleted account of the same group."""
        self.usage.merge(other.usage)
        self.changes += 1

    def due(self, now: ClockReading, interval: float) -> float | None:
        """Return the seconds until the next write; None while nothing has changed and no Pods exist."""
        if now.monotonic - self._read_at >= SILENCE:
            self.allocate(now)
        if not self.held and self.changes == self.saved:
            return None
        return max(0.0, self.saved_at + interval - now.monotonic)

    def _add(self, spent: Spent, at: datetime) -> None:
        if self.canary:
            spent = replace(spent, serving=0.0, idle=0.0, starting=0.0, canary=spent.pod_seconds)
        if self._fresh_at is not None and _hour(at) != _hour(self._fresh_at):
            self.written = self.usage
        self._fresh_at = at
        if spent != NOTHING:
            self._fresh += spent
            self.changes += 1

    def _backfill(self, pods: Iterable[Object], now: ClockReading) -> None:
        """Bill the time in which no autoscaler ran: Pods count as idle since the last write, or since their
        creation.
        """
        if self.written.at is None:
            return
        since = max(self.written.at, now.wall - LONGEST_GAP)
        for pod in pods:
            made = pod["metadata"].get("creationTimestamp")
            for at, seconds in hours_between(max(since, parse_timestamp(made)) if made else now.wall, now.wall):
                self._add(Spent(idle=seconds), at)


def _hour(at: datetime) -> float:
    return at.timestamp() // HOUR.total_seconds()


def is_held(pod: Object) -> bool:
    """Return whether the Pod occupies resources of a node: it has one or is ready, and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in FINISHED
    return not ended and (bool((pod.get("spec") or {}).get("nodeName")) or is_ready(pod))


def replica_of(pod: Object) -> Replica:
    """Return the resource requests of a Pod or Pod template; extended resources (`nvidia.com/gpu`) by their limits.

    A part of a GPU counts as such. The resources of other Pods that belong to it are added.
    """
    pod_spec = pod.get("spec") or {}
    cpu, memory = requests_of(pod_spec)
    found = {"cpu": float(cpu), "memory": float(memory)}
    for container in pod_spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name:
                with suppress(ValueError):
                    found[name] = found.get(name, 0.0) + float(parse_quantity(str(amount)))
    if part := part_of_gpu(pod):
        found[NVIDIA_GPU] = part / THOUSANDTHS
    for name, more in _beside(pod).items():
        found[name] = found.get(name, 0.0) + more
    return {name: amount for name, amount in found.items() if amount}


def _beside(pod: Object) -> Replica:
    """Return the resources of the Pods that belong to this one; nothing if the annotation is not readable."""
    try:
        found = json.loads(annotations_of({"metadata": {}, **pod}).get(BESIDE_ANNOTATION, "{}"))
        return {str(name): float(amount) for name, amount in found.items() if 0.0 <= float(amount) < math.inf}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
