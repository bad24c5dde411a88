"""When the last replica goes."""

from __future__ import annotations

import numpy as np

from autoscaler.scaling.stages.peak_hold import hold_of
from autoscaler.scaling.stages.situation import Outcome, Situation, once, where
from autoscaler.scaling.table import FloatArray, IntArray


@once
def idle_limit(at: Situation) -> FloatArray:
    """Seconds without work before the last replica goes: what is asked for, else the hold, and no less than a minute.

    Whoever comes next waits for a start; so the last replica, too, is kept as long as its start makes it worth while.
    """
    asked = at.specs.scale_to_zero_after
    longest = where(asked < 0.0, np.maximum(hold_of(at), at.settings.least_idle), asked)
    limit: FloatArray = np.maximum(longest, at.specs.scale_down_delay)
    return limit


def keep_one(at: Situation, desired: IntArray) -> Outcome:
    """The last replica is not a matter of averages: it stays until `idle` says otherwise."""
    seen = at.seen
    alive = (seen.current > 0) | at.is_waited_for
    return Outcome(np.maximum(desired, alive), lambda: {"idle": seen.idle, "limit": idle_limit(at)})


def idle(at: Situation, desired: IntArray) -> Outcome:
    """All replicas go once none of them, nor the activator, had work for long enough.

    A replica that goes does not answer any more. Its silence is no work: averages of the time before would bring all
    replicas back, only for them to go again.
    """
    seen, limit = at.seen, idle_limit(at)
    silent = at.state.at_rest & np.isnan(seen.idle)
    over = (silent | (seen.idle >= limit)) & (seen.active <= 0.0) & ~at.is_waited_for
    return Outcome(desired * ~over, lambda: {"idle": seen.idle, "limit": limit}, {"at_rest": over})
