"""Which models stay warm for how long, where a warm pool stands behind them: the edge of `keeper`.

A revision is followed while it may go to zero and a member could serve it. Its idle times come from what ticks read and
from requests that wait at zero; the pool manager asks for a plan once a minute for each of its pools. The holds of a
plan reach the decider with the next pass over each revision whose hold has changed. Revisions without a pool, and those
whose keep-alive somebody set, are kept by their own policy.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.config import Scaling
from autoscaler.metrics.collector import Reading
from autoscaler.metrics.source import LoadView
from autoscaler.warmpool.sizing.arrivals import ClassKey
from autoscaler.warmpool.sizing.keeper import Candidate, Hold, Keeper
from autoscaler.warmpool.sizing.planner import Balance, PoolView
from clusters.base.clock import Clock
from clusters.base.objects import Key

log = logging.getLogger(__name__)

LOOK: Final = 60.0
"""s between two plans for a pool: habits of models change in hours, a plan for 200 of them takes 15 ms."""
ASSUMED_CLAIM: Final = 1.0
"""s of a claim and the load after it: between a small model (0.1 s) and one of some gigabytes (3 s)."""
NOTABLE: Final = 0.1
"""Share by which a hold has to differ from the one before to be worth a pass over its revision."""


@dataclass(slots=True)
class _Followed:
    """A revision: where its members are, the keep-alive that somebody set, and its work by monotonic seconds."""

    where: ClassKey
    set_to: float | None
    watched: float
    working: bool | None = None  # None before its first request
    worked: float = 0.0  # since when, the last time
    idle_from: float = 0.0


@dataclass(frozen=True, slots=True)
class _Planned:
    at: float
    balance: Balance | None


class KeepWarm:
    """Follows revisions; `start_time` knows the seconds of their cold starts (NaN: none yet), `load` what waits for
    them; `changed` hears of each revision that has another hold than before.
    """

    def __init__(
        self,
        clock: Clock,
        scaling: Scaling,
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
        self._keeper: Keeper[Key] = Keeper()
        self._followed: dict[Key, _Followed] = {}
        self._plans: dict[ClassKey, _Planned] = {}
        self._holds: dict[Key, Hold] = {}

    def follow(self, key: Key, where: ClassKey, set_to: float | None) -> Hold | None:
        """The revision may go to zero, after `set_to` seconds where somebody said so; its hold, None for as usual."""
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(where, set_to, self._clock.monotonic())
        if followed.where != where:  # its template has changed: another pool's plan, or none
            followed.where = where
            self._holds.pop(key, None)
        followed.set_to = set_to
        return self._holds.get(key) if set_to is None else None

    def unfollow(self, key: Key) -> None:
        """The revision does not go to zero for the present; what is known of it stays."""
        self._followed.pop(key, None)
        self._holds.pop(key, None)

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self.unfollow(key)
        self._keeper.forget(key)

    def heard(self, readings: Mapping[Key, Reading]) -> None:
        """A tick has read these revisions."""
        now = self._clock.monotonic()
        for key, reading in readings.items():
            if (followed := self._followed.get(key)) is not None:
                load = self._load(key)
                working = reading.busy or load.queued > 0 or load.active > 0
                if working is not followed.working and (working or reading.complete):
                    self._turn(key, followed, working, now)

    def woke(self, key: Key) -> None:
        """The number of requests that wait for a revision has changed."""
        followed = self._followed.get(key)
        if followed is not None and not followed.working and self._load(key).queued > 0:
            self._turn(key, followed, True, self._clock.monotonic())

    def plan(self, where: ClassKey, pool: PoolView) -> Balance | None:
        """What holds and members come to, planned anew once in `LOOK`; None while too little is known."""
        now, last = self._clock.monotonic(), self._plans.get(where)
        if last is not None and now - last.at < LOOK:
            return last.balance
        candidates = {key: self._candidate(key, one, now) for key, one in self._followed.items() if one.where == where}
        plan = self._keeper.plan(candidates, pool)
        self._plans[where] = _Planned(now, plan.balance)
        for key, hold in plan.holds.items():
            if candidates[key].fixed:
                continue
            self._set(key, hold if plan.balance is not None else None)
        return plan.balance

    def drop(self, where: ClassKey) -> None:
        """The pool is gone: its models are kept as usual."""
        if self._plans.pop(where, None) is None:
            return
        for key in [key for key, one in self._followed.items() if one.where == where]:
            self._set(key, None)

    def _set(self, key: Key, hold: Hold | None) -> None:
        before = self._holds.get(key)
        if hold is None:
            self._holds.pop(key, None)
        elif before is None or abs(hold.seconds - before.seconds) > NOTABLE * before.seconds:
            self._holds[key] = hold
        if self._holds.get(key) is not before:
            log.info("%s: %s", key, "kept warm as usual" if hold is None else hold.reason)
            self._changed(key)

    def _turn(self, key: Key, followed: _Followed, working: bool, now: float) -> None:
        if working and followed.working is None:
            self._keeper.began(key, now - followed.watched)
        elif working:
            self._keeper.came(key, now - followed.idle_from, followed.idle_from - followed.worked)
        if working:
            followed.worked = now
        elif followed.working is None:
            return  # ready, and never asked yet
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


def usual_keep_alive(start_time: float, scaling: Scaling) -> float:
    """Seconds that `auto` keeps a model without a plan: as `scaling.stages.zero.idle_limit` has it."""
    hold = min(max(scaling.hold_starts * start_time, scaling.hold_least), scaling.hold_most)
    return max(hold, scaling.least_idle)
