"""The clock of each Model's rollout: steady while the rollout waits, so that setting the clock moves no wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from clusters.base.clock import Clock, SteadyClock
from clusters.base.objects import Key, Object, key_of
from serving.reconciler.rollout.schedule import seconds_to_settle
from serving.reconciler.rollout.state import rollout_of


class RolloutClocks:
    """The time of passes, for each Model: wall time until a rollout begins, then a steady clock until its last wait.

    A clock that is set during a rollout moves none of its waits. A clock that was wrong when the process started spoils
    no rollout that begins after the correction. A rollout that supersedes a running one continues on its clock. Steady
    clocks are local to this process: the next leader may find a rollout whose times come from another clock. It then
    resumes the rollout as of its last write, unless the times are consistent with its own (`RolloutState.taken_up`).
    """

    def __init__(self, clock: Clock, elapsed: Callable[[], float]) -> None:
        """`elapsed` returns seconds, as for `SteadyClock`."""
        self._clock = clock
        self._elapsed = elapsed
        self._steady: dict[Key, SteadyClock] = {}
        self._found: dict[Key, datetime] = {}

    def now(self, model: Object, *, stale: bool = False) -> datetime:
        """Return the time of a pass. `stale`: a later write of this process may have started a rollout already."""
        key, state = key_of(model), rollout_of(model)
        steady = self._steady.get(key)
        first = steady is None
        if steady is None or not (stale or _waits(model, steady.now())):
            steady = self._steady[key] = SteadyClock(self._clock, self._elapsed)
        now = steady.now()
        if first and state is not None and state.runs:
            self._found[key] = now
        return now

    def found_at(self, key: Key) -> datetime | None:
        """Return when this process found the rollout running; None if it was not, or was written since."""
        return self._found.get(key)

    def record_write(self, key: Key) -> None:
        """Record that this process wrote the rollout's state: its times come from this clock from now on."""
        self._found.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drop the clock of a deleted Model."""
        self._steady.pop(key, None)
        self._found.pop(key, None)


def _waits(model: Object, now: datetime) -> bool:
    """Return whether the rollout runs, or its stable version still settles after a rollback."""
    state = rollout_of(model)
    if state is None or state.runs:
        return state is not None
    return (seconds_to_settle(state, now) or 0.0) > 0.0
