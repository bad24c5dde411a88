"""Knative's autoscaling rule with its defaults, as a policy of the simulation, from its documentation and sources.

Sources (knative/serving):

- `config/core/configmaps/autoscaler.yaml`: the values. - `pkg/autoscaler/scaling/autoscaler.go`: the rule.
`multiscaler.go`: decisions every 2 s, and at the first request for a
  revision at zero. `pkg/autoscaler/aggregation/bucketing.go`: averages.
- `pkg/activator/handler`: the reports of the activator.
- `pkg/reconciler/autoscaling/kpa/scaler.go`: scaling to zero.

The metric is concurrency: the average number of queued and running requests in each second. The activator reports the
first request for an idle revision at once. It stays in the path while the replicas have no free capacity for
`target-burst-capacity` requests. In either case each request is counted once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from loadtests.simulate.scaler import RevisionState

SCRAPE = 1.0
"""Seconds between two readings."""
DIGITS = 6
"""Decimal places of an average."""


@dataclass(frozen=True, slots=True)
class KnativeSettings:
    """The settings of `config-autoscaler`, in seconds, shares and requests."""

    stable_window: int = 60
    panic_window: int = 6  # panic-window-percentage 10
    panic_threshold: float = 2.0  # panic-threshold-percentage 200
    target_share: float = 0.7  # container-concurrency-target-percentage 70
    max_scale_up_rate: float = 1_000.0
    max_scale_down_rate: float = 2.0
    target_burst_capacity: float = 211.0
    zero_grace: float = 30.0  # scale-to-zero-grace-period
    tick: int = 2  # tickInterval


class KnativeWindow:
    """Average over the last `seconds` seconds, with one bucket for each second.

    Values recorded within one second add up. The average covers the seconds since the first record, at most the window.
    Seconds after the last record are not counted. Once the whole window is without a record, there is no average, and
    the next record counts as the first.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._buckets: deque[tuple[int, float]] = deque()  # seconds with records, oldest first
        self._first = self._last = -1

    def record(self, now: float, value: float) -> None:
        """Add `value` to the second of `now`."""
        second = int(now)
        if not self._buckets or second - self._last >= self._seconds:
            self._buckets.clear()
            self._first = second
        if self._buckets and self._last == second:
            value += self._buckets.pop()[1]
        self._buckets.append((second, value))
        self._last = second

    def average(self, now: float) -> float | None:
        """Return the average at `now`, rounded to `DIGITS` decimal places; None without data."""
        second = int(now)
        if not self._buckets or second - self._last >= self._seconds:
            return None
        while self._buckets[0][0] <= second - self._seconds:
            self._buckets.popleft()
        written = min(self._last - self._first + 1, self._seconds - (second - self._last))
        return round(sum(value for _, value in self._buckets) / written, DIGITS)


class Knative:
    """A revision of class `kpa.autoscaling.knative.dev` with `slots` as its container concurrency."""

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
        self._held = 0.0  # held_seconds at the last report
        self._reported = 0.0  # concurrency of the next second that was reported in advance
        self._active_since = math.inf
        self._proxied_since = 0.0

    def decide_at_tick(self, state: RevisionState) -> int:
        """Report the concurrency every second, and decide every other second."""
        self._report(state)
        if int(state.now) % self._settings.tick == 0:
            self._decide(state)
        return self._apply(state)

    def decide_on_queue_change(self, state: RevisionState) -> int:
        """Report a request for a revision at zero and decide at once."""
        if state.queued and state.current == 0:
            self._held, self._reported = state.held_seconds, 1.0
            self._record(state.now, 1.0)
            self._decide(state)
        return self._apply(state)

    def observe_replicas(self, state: RevisionState) -> None:
        """Update the time since which the revision has had a ready replica."""
        if state.ready == 0:
            self._active_since = math.inf
        elif math.isinf(self._active_since):
            self._active_since = state.now

    def record_start(self, seconds: float) -> None:
        """Ignore the event: Knative does not use start times."""

    def _report(self, state: RevisionState) -> None:
        concurrency = (state.held_seconds - self._held) / SCRAPE
        if concurrency > 0.0 or state.ready:
            self._record(state.now, max(0.0, concurrency - self._reported))
        self._held, self._reported = state.held_seconds, 0.0

    def _record(self, now: float, concurrency: float) -> None:
        self._stable.record(now, concurrency)
        self._panic.record(now, concurrency)

    def _decide(self, state: RevisionState) -> None:
        """Apply the rule (`Scale` in autoscaler.go)."""
        settings = self._settings
        stable, panic = self._stable.average(state.now), self._panic.average(state.now)
        if stable is None or panic is None:
            return
        ready = max(1, state.ready)
        most = math.ceil(settings.max_scale_up_rate * ready)
        least = math.floor(ready / settings.max_scale_down_rate)
        by_stable, by_panic = math.ceil(stable / self._target), math.ceil(panic / self._target)
        if by_panic / ready >= settings.panic_threshold:
            self._panic_since = state.now
        elif self._panic_since is not None and self._panic_since + settings.stable_window < state.now:
            self._panic_since, self._panic_most = None, 0
        desired = min(max(by_stable, least), most)
        if self._panic_since is not None:
            desired = max(desired, min(max(by_panic, least), most), self._panic_most)
            self._panic_most = desired
        self._desired = desired
        self._choose_path(state, panic)

    def _choose_path(self, state: RevisionState, panic: float) -> None:
        """Put the activator into the path if the excess burst capacity is negative."""
        excess = math.floor(state.ready * self._slots - self._settings.target_burst_capacity - panic)
        if excess >= 0:
            self._proxied_since = math.inf
        elif math.isinf(self._proxied_since):
            self._proxied_since = state.now

    def _apply(self, state: RevisionState) -> int:
        """Return the desired replicas.

        Keep the last one until it was active for a stable window and the activator was in the path for the grace
        period.
        """
        if self._desired is None:
            return state.current
        if self._desired > 0 or state.current == 0:
            return self._desired
        settings, now = self._settings, state.now
        if state.ready and now - self._active_since < settings.stable_window:
            return 1
        return 0 if now - self._proxied_since >= settings.zero_grace else 1
