"""Keep-alives of models with a warm pool: connects the autoscaler and the pool manager with `keep_alive_planner`.

A revision is followed while it may go to zero and a member could serve it. Its idle times come from readings and from
requests queued at zero. The pool manager requests a plan once a minute for each of its pools. A revision whose
keep-alive changed is enqueued, so that the next pass applies it. Revisions without a pool, and those with a configured
keep-alive, follow their own policy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.config import DecisionSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.metrics.source import LoadView
from autoscaler.warmpool.sizing.arrivals import ClassKey
from autoscaler.warmpool.sizing.keep_alive_planner import Candidate, KeepAlive, KeepAlivePlanner
from autoscaler.warmpool.sizing.planner import Balance, PoolView
from clusters.base.clock import Clock
from clusters.base.objects import Key

log = logging.getLogger(__name__)

PLAN_INTERVAL: Final = 60.0
"""Seconds between two plans for a pool: habits of models change in hours; a plan for 200 of them takes 15 ms."""
ASSUMED_CLAIM: Final = 1.0
"""Seconds of a claim and the following load: between a small model (0.1 s) and one of some gigabytes (3 s)."""
NOTABLE: Final = 0.1
"""Minimum relative change of a keep-alive that is worth a pass over its revision."""


@dataclass(slots=True)
class _Followed:
    """A revision: its pool class, its configured keep-alive, and its work in monotonic seconds."""

    where: ClassKey
    set_to: float | None
    watched: float
    working: bool | None = None  # None before its first request
    worked: float = 0.0  # when its last work began
    idle_from: float = 0.0


@dataclass(frozen=True, slots=True)
class _Planned:
    at: float
    balance: Balance | None


class KeepWarm:
    """Follows revisions. `start_time` returns the seconds of their cold starts (NaN: unknown), `load` their requests at
    activators; `changed` receives each revision with a changed keep-alive.
    """

    def __init__(
        self,
        clock: Clock,
        scaling: DecisionSettings,
        *,
        start_time: Callable[[Key], float],
        load: Callable[[Key], LoadView],
        changed: Callable[[Key], None],
    ) -> None:
        self._clock = clock
        self._scaling = scaling
        self._start_time = start_time
        self._load = load
        self._changed = changed
        self._planner: KeepAlivePlanner[Key] = KeepAlivePlanner()
        self._followed: dict[Key, _Followed] = {}
        self._plans: dict[ClassKey, _Planned] = {}
        self._keep_alives: dict[Key, KeepAlive] = {}

    def follow(self, key: Key, where: ClassKey, set_to: float | None) -> KeepAlive | None:
        """Record that the revision may go to zero, after `set_to` seconds if configured; return its keep-alive, None
        for its policy's.
        """
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(where, set_to, self._clock.monotonic())
        if followed.where != where:  # its template has changed, so another pool's plan applies
            followed.where = where
            self._keep_alives.pop(key, None)
        followed.set_to = set_to
        return self._keep_alives.get(key) if set_to is None else None

    def unfollow(self, key: Key) -> None:
        """Record that the revision does not go to zero at present; its history stays."""
        self._followed.pop(key, None)
        self._keep_alives.pop(key, None)

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self.unfollow(key)
        self._planner.forget(key)

    def observe(self, readings: Mapping[Key, RevisionReading]) -> None:
        """Record the readings of a tick."""
        now = self._clock.monotonic()
        for key, reading in readings.items():
            if (followed := self._followed.get(key)) is not None:
                load = self._load(key)
                working = reading.busy or load.queued > 0 or load.active > 0
                if working is not followed.working and (working or reading.complete):
                    self._transition(key, followed, working, now)

    def observe_queue(self, key: Key) -> None:
        """Record that the number of a revision's queued requests has changed."""
        followed = self._followed.get(key)
        if followed is not None and not followed.working and self._load(key).queued > 0:
            self._transition(key, followed, True, self._clock.monotonic())

    def plan(self, where: ClassKey, pool: PoolView) -> Balance | None:
        """Return the balance of keep-alives and members, recalculated every `PLAN_INTERVAL`; None while data is
        insufficient.
        """
        now, last = self._clock.monotonic(), self._plans.get(where)
        if last is not None and now - last.at < PLAN_INTERVAL:
            return last.balance
        candidates = {key: self._candidate(key, one, now) for key, one in self._followed.items() if one.where == where}
        plan = self._planner.plan(candidates, pool)
        self._plans[where] = _Planned(now, plan.balance)
        for key, hold in plan.holds.items():
            if candidates[key].fixed:
                continue
            self._apply(key, hold if plan.balance is not None else None)
        return plan.balance

    def drop(self, where: ClassKey) -> None:
        """Delete the plan of a pool that is gone: its models follow their own policies."""
        if self._plans.pop(where, None) is None:
            return
        for key in [key for key, one in self._followed.items() if one.where == where]:
            self._apply(key, None)

    def _apply(self, key: Key, hold: KeepAlive | None) -> None:
        before = self._keep_alives.get(key)
        if hold is None:
            self._keep_alives.pop(key, None)
        elif before is None or abs(hold.seconds - before.seconds) > NOTABLE * before.seconds:
            self._keep_alives[key] = hold
        if self._keep_alives.get(key) is not before:
            log.info("%s: %s", key, "keep-alive of its own policy" if hold is None else hold.reason)
            self._changed(key)

    def _transition(self, key: Key, followed: _Followed, working: bool, now: float) -> None:
        if working and followed.working is None:
            self._planner.record_first_request(key, now - followed.watched)
        elif working:
            self._planner.record_idle_time(key, now - followed.idle_from, followed.idle_from - followed.worked)
        if working:
            followed.worked = now
        elif followed.working is None:
            return  # ready, and no request so far
        else:
            followed.idle_from = now
        followed.working = working

    def _candidate(self, key: Key, followed: _Followed, now: float) -> Candidate:
        known = self._start_time(key)
        cold = self._scaling.assumed_start_time if math.isnan(known) else known
        return Candidate(
            usual=usual_keep_alive(cold, self._scaling) if followed.set_to is None else followed.set_to,
            cold=cold,
            claim=min(ASSUMED_CLAIM, cold),
            idle=now - followed.idle_from if followed.working is False else 0.0,
            fixed=followed.set_to is not None,
        )


def usual_keep_alive(start_time: float, scaling: DecisionSettings) -> float:
    """Return the seconds of `auto` without a plan, the same as `scaling.stages.zero.idle_limit`."""
    hold = min(max(scaling.hold_starts * start_time, scaling.hold_least), scaling.hold_most)
    return max(hold, scaling.least_idle)
