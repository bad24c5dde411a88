"""From a PodAutoscaler to the row of the decider's `Specs`: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from autoscaler.config import Zero
from autoscaler.knative_annotations import PROGRESS_DEADLINE, TARGET
from autoscaler.reconciler.status import has_timed_out, is_initialized, starting_for
from autoscaler.schedules import scheduled_minimum
from autoscaler.types import POLICY_ANNOTATION, Policy
from autoscaler.warmpool.claims.marks import LABEL_SEED
from clusters.base.durations import parse_duration
from clusters.base.objects import Object, annotations_of, labels_of

UNREACHABLE = "Unreachable"
LONGEST_SLEEP = 600.0
"""s between two looks at a revision's schedules."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a PodAutoscaler asks for: its policy, the slots of one replica, and the columns of its row in `Specs`.

    `scheduled`: replicas that its schedules want now. `until`: when that may be another number (UTC).
    """

    policy: Policy
    slots: float
    spec: Mapping[str, float | int | bool]
    scheduled: int = 0
    until: datetime | None = None

    @property
    def may_be_zero(self) -> bool:
        """Whether it may have no replica now, provided that somebody hears of requests."""
        return bool(self.spec["reachable"]) and not max(self.policy.min_replicas, self.scheduled)

    @property
    def least(self) -> int:
        """The lower bound of replicas, as `stages.least_replicas` has it."""
        least = int(self.spec["min"]) if self.spec["reachable"] else 0
        return min(
            least if self.spec["initialized"] else max(least, self.policy.initial_scale), self.policy.max_replicas
        )


def make_wishes(pod_autoscaler: Object, policy: Policy, zero: Zero, now: datetime) -> Wishes:
    """All that it asks for at `now`: its progress deadline passes, and schedules open and close, by themselves."""
    reachable = is_reachable(pod_autoscaler)
    slots = slots_of(pod_autoscaler, policy)
    scheduled, until = scheduled_minimum(policy.schedules, now)
    least = min(max(policy.min_replicas, scheduled), policy.max_replicas)
    spec = {
        "min": least if zero.enabled or not reachable else max(1, least),
        "max": policy.max_replicas,
        "initial": policy.initial_scale,
        "activation": policy.activation_scale,
        "target": slots,
        "utilization": policy.target_utilization,
        "scale_to_zero_after": policy.scale_to_zero_after,
        "scale_down_delay": policy.scale_down_delay,
        "stable_window": policy.stable_window,
        "latency_objective": policy.latency_objective,
        "reachable": reachable,
        "initialized": is_initialized(pod_autoscaler),
        "expired": has_expired(pod_autoscaler, zero, now),
    }
    return Wishes(policy, slots, spec, scheduled, until)


def seconds_to_schedule(wishes: Wishes, now: datetime) -> float | None:
    """Seconds until the next look at its schedules, None without any.

    Timers stand still while a machine sleeps, and clocks are set: no look is further away than `LONGEST_SLEEP`.
    """
    return None if wishes.until is None else min((wishes.until - now).total_seconds(), LONGEST_SLEEP)


def slots_of(pod_autoscaler: Object, policy: Policy) -> float:
    """Slots of one replica: what is asked for, and never more than its hard limit, which stands for what is not said.

    Knative: `ResolveMetricTarget` in `pkg/reconciler/autoscaling/resources/target.go`.
    """
    limit = float(pod_autoscaler["spec"].get("containerConcurrency") or 0)
    annotations = annotations_of(pod_autoscaler)
    said = POLICY_ANNOTATION in annotations or TARGET in annotations
    return min(policy.scale_target, limit) if limit > 0 and said else limit or policy.scale_target


def is_reachable(pod_autoscaler: Object) -> bool:
    """Whether requests may come: a Route may point to it, and it is not there only to tell how members look."""
    reachability = pod_autoscaler["spec"].get("reachability")
    return reachability != UNREACHABLE and LABEL_SEED not in labels_of(pod_autoscaler)


def has_expired(pod_autoscaler: Object, zero: Zero, now: datetime) -> bool:
    """Whether it has been starting for longer than it may, or was given up for that."""
    starting = starting_for(pod_autoscaler, now)
    overdue = starting is not None and starting >= longest_start(pod_autoscaler, zero)
    return overdue or has_timed_out(pod_autoscaler)


def seconds_to_expiry(pod_autoscaler: Object, zero: Zero, now: datetime) -> float | None:
    """Seconds left until it is given up; None while it is not starting, and once they are over."""
    starting = starting_for(pod_autoscaler, now)
    left = 0.0 if starting is None else longest_start(pod_autoscaler, zero) - starting
    return left if left > 0.0 else None


def longest_start(pod_autoscaler: Object, zero: Zero) -> float:
    """Seconds: its progress deadline, and the time in which the Revision learns why it was missed."""
    return progress_deadline(pod_autoscaler, zero) + zero.diagnosis


def progress_deadline(pod_autoscaler: Object, zero: Zero) -> float:
    """Seconds; the revision's annotation, else the installation's."""
    text = annotations_of(pod_autoscaler).get(PROGRESS_DEADLINE)
    try:
        return parse_duration(text) if text else zero.progress_deadline
    except ValueError:  # Knative's webhook refuses such a revision; one that slipped through gets the default
        return zero.progress_deadline
