"""The rules of a decision, each a pure function over all revisions at once.

A stage gets the situation and the number of replicas that the stages before it arrived at; it answers with the number
after it, the numbers that explain it, and the columns of the state that it keeps. Which stages, in which order: see
`decider.STAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoscaler.config import Scaling
from autoscaler.scaling.table import NAN, NEVER, BoolArray, FloatArray, IntArray, Observations, Specs, State

MOST = 1e9  # replicas: keeps nonsense within what an integer holds; the bounds follow


@dataclass(frozen=True, slots=True)
class Situation:
    """What every stage looks at; `state` is that of the decision before. `now` in monotonic seconds."""

    specs: Specs
    seen: Observations
    state: State
    now: float
    settings: Scaling


@dataclass(frozen=True, slots=True)
class Outcome:
    """Replicas after the stage, the numbers that explain them, and state columns to keep."""

    desired: IntArray
    values: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)


Stage = Callable[[Situation, IntArray], Outcome]


def replicas_for(work: FloatArray, at: Situation) -> IntArray:
    """Replicas that hold `work` slots: ⌈work ÷ (target × utilization) − tolerance⌉ (Knative's rule, with tolerance)."""
    needed = np.ceil(work / at.specs.per_replica - at.settings.tolerance)
    whole: IntArray = np.clip(np.nan_to_num(needed, nan=0.0, posinf=MOST), 0.0, MOST).astype(np.int64)
    return whole


def stable(at: Situation, desired: IntArray) -> Outcome:
    """What the stable window calls for; without data the count stays.

    Replicas that did not answer count as idle when that would add replicas, and as full when it would remove some
    (the rule of Kubernetes' HorizontalPodAutoscaler for missing metrics).
    """
    seen = at.seen
    least, most = replicas_for(seen.stable, at), replicas_for(seen.stable + seen.unknown, at)
    known = ~np.isnan(seen.stable)
    shrunk = np.minimum(most, desired)
    result = np.where(known, np.where(least >= desired, least, shrunk), desired)
    values = {"work": seen.stable, "window": at.specs.stable_window, "per_replica": at.specs.per_replica}
    return Outcome(result, values)


def backlog(at: Situation) -> FloatArray:
    """Slots that the waiting requests call for, beyond what starting replicas will drain before a new one is ready.

    A replica started now is ready when those that start already have been ready for as long as they are old: by then
    each has drained `target` slots for its age. Of what is left, requests that take less than `drain_within` seconds
    call for the fraction of a slot that finishes them within it.
    """
    seen, settings = at.seen, at.settings
    service_time = np.where(seen.service_time > 0.0, seen.service_time, settings.assumed_service_time)
    drained = seen.starting_seconds * at.specs.target / service_time
    weight = np.minimum(1.0, service_time / settings.drain_within)
    return np.maximum(seen.queued - drained, 0.0) * weight


def _work_now(at: Situation) -> FloatArray:
    """Slots in use by the panic window; ready replicas that are not heard while requests wait are taken for full."""
    return np.where(np.isnan(at.seen.panic), at.seen.ready * at.specs.per_replica, at.seen.panic)


def _waiting_wants(at: Situation) -> IntArray:
    wants = np.maximum(replicas_for(_work_now(at) + backlog(at), at), 1)
    return np.where(at.seen.queued > 0.0, wants, 0)


def waiting(at: Situation, desired: IntArray) -> Outcome:
    """Requests that wait at the activator call for replicas at once."""
    values = {
        "queued": at.seen.queued,
        "backlog": backlog(at),
        "work": _work_now(at),
        "per_replica": at.specs.per_replica,
    }
    return Outcome(np.maximum(desired, _waiting_wants(at)), values)


def _crowd_wants(at: Situation) -> IntArray:
    return np.where(at.seen.crowd > 0.0, replicas_for(at.seen.crowd, at), 0)


def crowded(at: Situation, desired: IntArray) -> Outcome:
    """Requests that wait inside replicas call for others at once, which those that come next will find free.

    They did so for a tick already: a burst of short requests, gone before another replica is there, calls for none.
    """
    values = {"crowd": at.seen.crowd, "per_replica": at.specs.per_replica}
    return Outcome(np.maximum(desired, _crowd_wants(at)), values)


def panic(at: Situation, desired: IntArray) -> Outcome:
    """A need of `panic_threshold` times the ready replicas is met at once and held for a stable window.

    Knative's panic mode, except that a process that has just started and found replicas does not panic by windows that
    hold but seconds; requests that wait are a fact all the same.
    """
    specs, seen, state, now = at.specs, at.seen, at.state, at.now
    wants = np.maximum(replicas_for(seen.panic, at), np.maximum(_waiting_wants(at), _crowd_wants(at)))
    wants = np.minimum(wants, specs.max)
    trusted = ~seen.adopted | ~is_young(at) | (seen.queued > 0.0) | (seen.crowd > 0.0)
    over = trusted & (wants >= at.settings.panic_threshold * np.maximum(seen.ready, 1))
    before = now < state.panic_until
    peak = np.where(over | before, np.maximum(np.where(before, state.panic_peak, 0), np.where(trusted, wants, 0)), 0)
    until = np.where(over, now + specs.stable_window, np.where(before, state.panic_until, NEVER))
    values = {"threshold": at.settings.panic_threshold, "ready": seen.ready, "remaining": until - now}
    return Outcome(np.maximum(desired, peak), values, {"panic_until": until, "panic_peak": peak})


def keep_while_waiting(at: Situation, desired: IntArray) -> Outcome:
    """Nothing goes while requests wait: what starts is needed for them."""
    result = np.where(at.seen.queued > 0.0, np.maximum(desired, at.seen.current), desired)
    return Outcome(result, {"current": at.seen.current})


def is_young(at: Situation) -> BoolArray:
    """Whether there are not yet readings of a whole stable window, or too many of it are missing."""
    window = at.specs.stable_window
    old = (at.seen.age >= window) & (at.seen.covered >= at.settings.enough_coverage * window)
    return ~old


def hold_without_data(at: Situation, desired: IntArray) -> Outcome:
    """Nothing is scaled down before a stable window's worth of readings: a restart, a silent source, a new replica."""
    result = np.where(is_young(at), np.maximum(desired, at.seen.current), desired)
    return Outcome(result, {"covered": at.seen.covered, "window": at.specs.stable_window})


def rate_limits(at: Situation, desired: IntArray) -> Outcome:
    """At most `max_up_rate` times the ready replicas, at least the current ones ÷ `max_down_rate`."""
    current = at.seen.current
    most = np.ceil(at.settings.max_up_rate * np.maximum(at.seen.ready, 1)).astype(np.int64)
    most = np.maximum(most, current)
    least = np.floor(current / at.settings.max_down_rate).astype(np.int64)
    return Outcome(np.clip(desired, least, most), {"current": current, "least": least, "most": most})


def activation_scale(at: Situation, desired: IntArray) -> Outcome:
    """Who leaves zero starts with at least this many."""
    leaves = (at.seen.current == 0) & (desired > 0)
    result = np.where(leaves, np.maximum(desired, at.specs.activation), desired)
    return Outcome(result, {"activation": at.specs.activation})


def scale_down_delay(at: Situation, desired: IntArray) -> Outcome:
    """Replicas go only after less was enough for the whole delay; then to the most that was wanted meanwhile."""
    seen, state, delay = at.seen, at.state, at.specs.scale_down_delay
    less = (desired < seen.current) & (delay > 0.0)
    fresh = np.isnan(state.below_since)
    since = np.where(less, np.where(fresh, at.now, state.below_since), NAN)
    peak = np.where(less, np.maximum(np.where(fresh, 0, state.below_peak), desired), 0)
    over = at.now - since >= delay
    result = np.where(less, np.where(over, peak, seen.current), desired)
    kept = {"below_since": np.where(over, NAN, since), "below_peak": np.where(over, 0, peak)}
    return Outcome(result, {"delay": delay}, kept)


def keep_one(at: Situation, desired: IntArray) -> Outcome:
    """The last replica is not a matter of averages: it stays until `idle` says otherwise."""
    seen = at.seen
    alive = (seen.current > 0) | (seen.queued > 0.0)
    values = {"idle": seen.idle, "limit": at.specs.scale_to_zero_after}
    return Outcome(np.where(alive, np.maximum(desired, 1), desired), values)


def idle(at: Situation, desired: IntArray) -> Outcome:
    """All replicas go once none of them, nor the activator, had work for `scale_to_zero_after` seconds."""
    seen, specs = at.seen, at.specs
    limit = np.maximum(specs.scale_to_zero_after, specs.scale_down_delay)
    empty = (seen.queued <= 0.0) & (seen.active <= 0.0)
    result = np.where(empty & (seen.idle >= limit), 0, desired)
    return Outcome(result, {"idle": seen.idle, "limit": limit})


def least_replicas(specs: Specs) -> IntArray:
    """The lower bound: `min` while a route points to it, and the initial scale until it was reached once."""
    least = np.where(specs.reachable, specs.min, 0)
    least = np.where(specs.initialized, least, np.maximum(least, specs.initial))
    return np.minimum(least, specs.max)


def bounds(at: Situation, desired: IntArray) -> Outcome:
    """Between the least and the most replicas of the policy."""
    least = least_replicas(at.specs)
    return Outcome(np.clip(desired, least, at.specs.max), {"least": least, "most": at.specs.max})


def give_up(at: Situation, desired: IntArray) -> Outcome:
    """What did not start within its progress deadline, and is not waited for, is not tried any longer.

    A revision that once was ready and has a lower bound is tried for ever, as Knative does.
    """
    specs = at.specs
    hopeless = specs.expired & (~specs.initialized | (least_replicas(specs) == 0)) & (at.seen.queued <= 0.0)
    return Outcome(np.where(hopeless, 0, desired))
