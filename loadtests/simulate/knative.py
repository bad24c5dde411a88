"""Knative's rule with all its defaults, from its documents and sources, as a policy of the simulation.

Sources (knative/serving): `config/core/configmaps/autoscaler.yaml` (the numbers), in `pkg/autoscaler/scaling`
`autoscaler.go` (the rule) and `multiscaler.go` (every 2 s, and at the first request for a revision at zero),
`pkg/activator/handler` (what the activator reports), `pkg/reconciler/autoscaling/kpa/scaler.go` (how the last replica
goes).

What is measured is concurrency: requests that wait or are worked on, on average over each second. The activator reports
the first request for an idle revision at once. It is in the path while the replicas have no room for
`target-burst-capacity` requests beside what they work on; in either case all requests are counted once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from loadtests.simulate.knative_window import KnativeWindow
from loadtests.simulate.scaler import Seen

SCRAPE = 1.0
"""Seconds between two readings."""


@dataclass(frozen=True, slots=True)
class KnativeSettings:
    """Names and values of `config-autoscaler`; seconds, shares, requests."""

    stable_window: int = 60
    panic_window: int = 6  # panic-window-percentage 10
    panic_threshold: float = 2.0  # panic-threshold-percentage 200
    target_share: float = 0.7  # container-concurrency-target-percentage 70
    max_scale_up_rate: float = 1_000.0
    max_scale_down_rate: float = 2.0
    target_burst_capacity: float = 211.0
    zero_grace: float = 30.0  # scale-to-zero-grace-period
    tick: int = 2  # tickInterval


class Knative:
    """A revision of class `kpa.autoscaling.knative.dev` whose container takes `slots` requests at once."""

    tick = SCRAPE

    def __init__(self, slots: int, settings: KnativeSettings | None = None) -> None:
        self._settings = settings or KnativeSettings()
        self._slots = slots
        self._target = slots * self._settings.target_share
        self._stable = KnativeWindow(self._settings.stable_window)
        self._panic = KnativeWindow(self._settings.panic_window)
        self._panic_since: float | None = None
        self._panic_most = 0
        self._desired: int | None = None
        self._held = 0.0  # as of the last report
        self._reported = 0.0  # of the next one
        self._active_since = math.inf
        self._proxied_since = 0.0

    def look(self, seen: Seen) -> int:
        """Every second what was held is reported, every other second it is decided on."""
        self._report(seen)
        if int(seen.now) % self._settings.tick == 0:
            self._decide(seen)
        return self._apply(seen)

    def wake(self, seen: Seen) -> int:
        """A request for a revision at zero is reported, and decided on, at once."""
        if seen.queued and seen.current == 0:
            self._held, self._reported = seen.held_seconds, 1.0
            self._record(seen.now, 1.0)
            self._decide(seen)
        return self._apply(seen)

    def counted(self, seen: Seen) -> None:
        """Active is what has a ready replica."""
        if seen.ready == 0:
            self._active_since = math.inf
        elif math.isinf(self._active_since):
            self._active_since = seen.now

    def started(self, seconds: float) -> None:
        """Knative does not ask how long replicas take."""

    def _report(self, seen: Seen) -> None:
        concurrency = (seen.held_seconds - self._held) / SCRAPE
        if concurrency > 0.0 or seen.ready:
            self._record(seen.now, max(0.0, concurrency - self._reported))
        self._held, self._reported = seen.held_seconds, 0.0

    def _record(self, now: float, concurrency: float) -> None:
        self._stable.record(now, concurrency)
        self._panic.record(now, concurrency)

    def _decide(self, seen: Seen) -> None:
        """The rule (`Scale` in autoscaler.go)."""
        settings = self._settings
        stable, panic = self._stable.average(seen.now), self._panic.average(seen.now)
        if stable is None or panic is None:
            return
        ready = max(1, seen.ready)
        most = math.ceil(settings.max_scale_up_rate * ready)
        least = math.floor(ready / settings.max_scale_down_rate)
        by_stable, by_panic = math.ceil(stable / self._target), math.ceil(panic / self._target)
        if by_panic / ready >= settings.panic_threshold:
            self._panic_since = seen.now
        elif self._panic_since is not None and self._panic_since + settings.stable_window < seen.now:
            self._panic_since, self._panic_most = None, 0
        desired = min(max(by_stable, least), most)
        if self._panic_since is not None:
            desired = max(desired, min(max(by_panic, least), most), self._panic_most)
            self._panic_most = desired
        self._desired = desired
        self._choose_path(seen, panic)

    def _choose_path(self, seen: Seen, panic: float) -> None:
        """Negative excess burst capacity puts the activator into the path."""
        excess = math.floor(seen.ready * self._slots - self._settings.target_burst_capacity - panic)
        if excess >= 0:
            self._proxied_since = math.inf
        elif math.isinf(self._proxied_since):
            self._proxied_since = seen.now

    def _apply(self, seen: Seen) -> int:
        """The last replica goes once it was active for a stable window, and the activator in the path for the grace."""
        if self._desired is None:
            return seen.current
        if self._desired > 0 or seen.current == 0:
            return self._desired
        settings, now = self._settings, seen.now
        if seen.ready and now - self._active_since < settings.stable_window:
            return 1
        return 0 if now - self._proxied_since >= settings.zero_grace else 1
