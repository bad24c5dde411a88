"""The spec of a revision, read from its PodAutoscaler, as a row of the decider's `Specs`. Pure."""

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
"""Maximum seconds between two evaluations of a revision's schedules."""


@dataclass(frozen=True, slots=True)
class RevisionSpec:
    """The spec of a PodAutoscaler: its policy, the slots of one replica, and the columns of its row in `Specs`.

    `scheduled`: minimum replicas of its schedules now. `until`: when that may change (UTC).
    """

    policy: Policy
    slots: float
    columns: Mapping[str, float | int | bool]
    scheduled: int = 0
    until: datetime | None = None

    @property
    def may_be_zero(self) -> bool:
        """Whether it may have no replica now, provided that queued requests are detected."""
        return bool(self.columns["reachable"]) and not max(self.policy.min_replicas, self.scheduled)

    @property
    def least(self) -> int:
        """The lower bound of replicas, as in `stages.limits.least_replicas`."""
        least = int(self.columns["min"]) if self.columns["reachable"] else 0
        return min(
            least if self.columns["initialized"] else max(least, self.policy.initial_scale), self.policy.max_replicas
        )


def make_revision_spec(pod_autoscaler: Object, policy: Policy, zero: Zero, now: datetime) -> RevisionSpec:
    """Return the spec at `now`. It changes with time: the progress deadline expires, and schedules open and close."""
    reachable = is_reachable(pod_autoscaler)
    slots = slots_of(pod_autoscaler, policy)
    scheduled, until = scheduled_minimum(policy.schedules, now)
    least = min(max(policy.min_replicas, scheduled), policy.max_replicas)
    columns = {
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
    return RevisionSpec(policy, slots, columns, scheduled, until)


def seconds_to_schedule(spec: RevisionSpec, now: datetime) -> float | None:
    """Return the seconds until the schedules must be evaluated again, None without any.

    Timers stop while a machine sleeps, and clocks are set, so the wait is at most `LONGEST_SLEEP`.
    """
    return None if spec.until is None else min((spec.until - now).total_seconds(), LONGEST_SLEEP)


def slots_of(pod_autoscaler: Object, policy: Policy) -> float:
    """Return the slots of one replica: the configured target, limited by the hard limit, which is also the default.

    Knative: `ResolveMetricTarget` in `pkg/reconciler/autoscaling/resources/target.go`.
    """
    limit = float(pod_autoscaler["spec"].get("containerConcurrency") or 0)
    annotations = annotations_of(pod_autoscaler)
    configured = POLICY_ANNOTATION in annotations or TARGET in annotations
    return min(policy.scale_target, limit) if limit > 0 and configured else limit or policy.scale_target


def is_reachable(pod_autoscaler: Object) -> bool:
    """Return whether requests may come: a Route may point to the revision, and it is not the seed of a warm pool."""
    reachability = pod_autoscaler["spec"].get("reachability")
    return reachability != UNREACHABLE and LABEL_SEED not in labels_of(pod_autoscaler)


def has_expired(pod_autoscaler: Object, zero: Zero, now: datetime) -> bool:
    """Return whether it has been starting for longer than allowed, or was given up for that."""
    starting = starting_for(pod_autoscaler, now)
    overdue = starting is not None and starting >= start_deadline(pod_autoscaler, zero)
    return overdue or has_timed_out(pod_autoscaler)


def seconds_to_expiry(pod_autoscaler: Object, zero: Zero, now: datetime) -> float | None:
    """Return the seconds until it is given up; None while it is not starting, and after its expiry."""
    starting = starting_for(pod_autoscaler, now)
    left = 0.0 if starting is None else start_deadline(pod_autoscaler, zero) - starting
    return left if left > 0.0 else None


def start_deadline(pod_autoscaler: Object, zero: Zero) -> float:
    """Return the seconds of its progress deadline plus the time in which the Revision reads the cause."""
    return progress_deadline(pod_autoscaler, zero) + zero.diagnosis


def progress_deadline(pod_autoscaler: Object, zero: Zero) -> float:
    """Return the seconds of the revision's annotation, else of the installation's setting."""
    text = annotations_of(pod_autoscaler).get(PROGRESS_DEADLINE)
    try:
        return parse_duration(text) if text else zero.progress_deadline
    except ValueError:  # Knative's webhook normally rejects such a revision
        return zero.progress_deadline
