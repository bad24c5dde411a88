"""The time that the passes over each Model go by."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from clusters.base.clock import Clock, SteadyClock
from clusters.base.objects import Key, Object, key_of
from serving.reconciler.rollout.schedule import seconds_to_settle
from serving.reconciler.rollout.state import rollout_of


class Times:
    """The machine's wall time, until a rollout begins; from then until its last wait is over a steady clock's.

    So a clock that is set in the middle of a rollout moves none of its waits, and one that was wrong as the process
    began spoils no rollout that begins after it was put right; one that supersedes a running one goes on by its time.
    What is steady lives in this process: the next leader finds a rollout whose moments may be of another time than its
    own, and unless they fit its own takes it up as far as it was when it was last written (`RolloutState.taken_up`).
    """

    def __init__(self, clock: Clock, elapsed: Callable[[], float]) -> None:
        """`elapsed`: as of `SteadyClock`."""
        self._clock = clock
        self._elapsed = elapsed
        self._steady: dict[Key, SteadyClock] = {}
        self._found: dict[Key, datetime] = {}

    def now(self, model: Object, *, stale: bool = False) -> datetime:
        """The time of a pass; `stale`: the status is known to be older than what we wrote, maybe of a new rollout."""
        key = key_of(model)
        steady = self._steady.get(key)
        first = steady is None
        if steady is None or not (stale or _waits(model, steady.now())):
            steady = self._steady[key] = SteadyClock(self._clock, self._elapsed)
        now = steady.now()
        if first and _runs(model):
            self._found[key] = now
        return now

    def found_at(self, key: Key) -> datetime | None:
        """When its rollout was found under way; None when it was not, and once this process has written of it."""
        return self._found.get(key)

    def wrote(self, key: Key) -> None:
        """The state of its rollout was written: its times are of ours from now on."""
        self._found.pop(key, None)

    def forget(self, key: Key) -> None:
        """The Model is gone."""
        self._steady.pop(key, None)
        self._found.pop(key, None)


def _runs(model: Object) -> bool:
    state = rollout_of(model)
    return state is not None and state.runs


def _waits(model: Object, now: datetime) -> bool:
    """Whether a wait of its rollout is under way: it runs, or the stable version settles after a rollback."""
    state = rollout_of(model)
    if state is None or state.runs:
        return state is not None
    return (seconds_to_settle(state, now) or 0.0) > 0.0
