"""One account: the Pods of a revision, or the free members of a warm pool, from the moment they are first seen. Pure.

It is told when the Pods change and when replicas were read, and counts what was held in between. Times are two: the
monotonic clock measures, the wall clock names the hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from autoscaler.metrics.stat import Sample
from autoscaler.usage.meter import HOUR, KEPT_HOURS, NOTHING, Replica, Spent, Usage, hours_between
from autoscaler.warmpool.claims.pods import FINISHED
from autoscaler.warmpool.spec import requests_of
from clusters.base.objects import Object, parse_timestamp
from clusters.base.quantities import parse_quantity
from clusters.net.endpoints import is_ready

SILENCE: Final = 60.0
"""s without a reading after which ready replicas count as idle; a late one still tells of the time since the last."""
LONGEST_GAP: Final = timedelta(hours=KEPT_HOURS)
"""Time without an autoscaler that is still accounted for: as far back as hours are kept."""


class Moment(NamedTuple):
    """Now, by both clocks."""

    monotonic: float
    wall: datetime


@dataclass(slots=True)
class Account:
    """Counts for one holder of Pods; `group` names those whose bills are one (a Configuration)."""

    written: Usage
    group: str = ""
    replica: Replica = field(default_factory=dict)
    canary: bool = False
    held: int = 0
    ready: int = 0
    changes: int = 0  # of the usage, ever
    saved: int = 0  # of which so many stand in the cluster
    saved_at: float = float("-inf")
    _counted: Moment | None = None
    _heard_at: float = float("-inf")
    _read: dict[str, tuple[float, float]] = field(default_factory=dict)
    _busy: float = 0.0  # pod-seconds with something to do, read and not yet counted
    _fresh: Spent = NOTHING  # of one hour, not yet among what is written
    _fresh_at: datetime | None = None
    _unsettled: float = 0.0  # pod-seconds of ready replicas of which it is not known yet whether they had

    @property
    def usage(self) -> Usage:
        """All that was counted."""
        if self._fresh_at is not None:
            self.written.at = self._fresh_at
            if self._fresh is not NOTHING:
                self.written.meter(self.replica).add(self._fresh, self._fresh_at)
        self._fresh, self._fresh_at = NOTHING, None
        return self.written

    def resize(self, replica: Replica, now: Moment) -> None:
        """From now on its Pods are of another size."""
        self.settle(now)
        self.written = self.usage  # all that was counted is of the former size
        self.replica = replica

    def see(self, pods: Iterable[Object], now: Moment, *, canary: bool = False) -> None:
        """These are its Pods from now on. At the first look what they held since the last count is made up for."""
        holding = [pod for pod in pods if is_held(pod)]
        if self._counted is None:
            self.canary = canary
            self._make_up(holding, now)
        self.count(now)
        self.held, self.ready = len(holding), sum(map(is_ready, holding))
        if not self.ready or canary is not self.canary:
            self.settle(now)
        self.canary = canary

    def hear(self, last: Mapping[str, Sample], now: Moment) -> None:
        """The last reading of each ready replica: how long it had something to do since the one before.

        A replica that has several requests at once is busy once: at most as long as the time that passed.
        """
        for pod in [pod for pod in self._read if pod not in last]:
            del self._read[pod]
        for pod, sample in last.items():
            at, total = self._read.get(pod, (sample.at, sample.busy_seconds))
            if sample.at > at:
                self._busy += min(max(0.0, sample.busy_seconds - total), sample.at - at)
            self._read[pod] = sample.at, sample.busy_seconds
        self._heard_at = now.monotonic
        self.settle(now)

    def count(self, now: Moment) -> None:
        """Count what was held since the last time; whether ready replicas had something to do, readings tell."""
        since = self._counted or now
        self._counted = now
        seconds = max(0.0, now.monotonic - since.monotonic)
        self._unsettled += self.ready * seconds
        self._add(Spent(starting=max(0, self.held - self.ready) * seconds), now.wall)

    def settle(self, now: Moment) -> None:
        """Divide the time of ready replicas: as much of it as readings tell was serving, the rest idle."""
        self.count(now)
        busy = min(self._unsettled, self._busy)
        self._add(Spent(serving=busy, idle=self._unsettled - busy), now.wall)
        self._busy = self._unsettled = 0.0

    def claim(self, now: Moment) -> None:
        """One more replica came out of a warm pool."""
        self._add(Spent(claims=1.0), now.wall)

    def inherit(self, other: Account) -> None:
        """Take over the bill of one of the same group that is gone."""
        self.usage.merge(other.usage)
        self.changes += 1

    def due(self, now: Moment, interval: float) -> float | None:
        """Seconds until it is to be written; None while there is nothing to write, nor will be."""
        if now.monotonic - self._heard_at >= SILENCE:
            self.settle(now)
        if not self.held and self.changes == self.saved:
            return None
        return max(0.0, self.saved_at + interval - now.monotonic)

    def _add(self, spent: Spent, at: datetime) -> None:
        if self.canary:
            spent = Spent(canary=spent.pod_seconds, claims=spent.claims)
        if self._fresh_at is not None and _hour(at) != _hour(self._fresh_at):
            self.written = self.usage
        self._fresh_at = at
        if spent.pod_seconds or spent.claims:
            self._fresh += spent
            self.changes += 1

    def _make_up(self, pods: Iterable[Object], now: Moment) -> None:
        """Nobody counted for a while: what is there was there since, or since it was made; idle, for all we know."""
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
    """Whether the Pod holds resources of a node: it has one, or is ready, and has not ended."""
    ended = (pod.get("status") or {}).get("phase") in FINISHED
    return not ended and (bool((pod.get("spec") or {}).get("nodeName")) or is_ready(pod))


def replica_of(pod_spec: Object) -> Replica:
    """What a Pod with this spec asks for; extended resources (`nvidia.com/gpu`) by their limits."""
    cpu, memory = requests_of(pod_spec)
    found = {"cpu": float(cpu), "memory": float(memory)}
    for container in pod_spec.get("containers") or ():
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in name:
                found[name] = found.get(name, 0.0) + _amount(amount)
    return {name: amount for name, amount in found.items() if amount}


def _amount(text: object) -> float:
    try:
        return float(parse_quantity(str(text)))
    except ValueError:
        return 0.0
