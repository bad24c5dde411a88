"""From a PodAutoscaler to the row of the decider's `Specs`: pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from autoscaler.apis import Policy
from autoscaler.config import Zero
from autoscaler.knative_annotations import PROGRESS_DEADLINE, parse_duration
from autoscaler.reconciler.status import has_timed_out, is_initialized, starting_for
from clusters.objects import Object, annotations_of

UNREACHABLE = "Unreachable"


def slots_of(pod_autoscaler: Object, policy: Policy) -> float:
    """Slots of one replica: the policy's target, bounded by the revision's hard limit."""
    limit = int(pod_autoscaler["spec"].get("containerConcurrency") or 0)
    return min(policy.scale_target, float(limit)) if limit > 0 else policy.scale_target


def make_spec(pod_autoscaler: Object, policy: Policy, zero: Zero, now: datetime) -> Mapping[str, float | int | bool]:
    """Columns of `Specs`."""
    return {
        "min": policy.min_replicas,
        "max": policy.max_replicas,
        "initial": policy.initial_scale,
        "activation": policy.activation_scale,
        "target": slots_of(pod_autoscaler, policy),
        "utilization": policy.target_utilization,
        "scale_to_zero_after": policy.scale_to_zero_after,
        "scale_down_delay": policy.scale_down_delay,
        "stable_window": policy.stable_window,
        "reachable": pod_autoscaler["spec"].get("reachability") != UNREACHABLE,
        "initialized": is_initialized(pod_autoscaler),
        "expired": has_expired(pod_autoscaler, zero, now),
    }


def least_replicas(spec: Mapping[str, float | int | bool]) -> int:
    """The lower bound of one row, as `stages.least_replicas`."""
    least = int(spec["min"]) if spec["reachable"] else 0
    return min(least if spec["initialized"] else max(least, int(spec["initial"])), int(spec["max"]))


def has_expired(pod_autoscaler: Object, zero: Zero, now: datetime) -> bool:
    """Whether it has been starting for longer than its progress deadline, or was given up for that."""
    return has_timed_out(pod_autoscaler) or seconds_to_expiry(pod_autoscaler, zero, now) == 0.0


def seconds_to_expiry(pod_autoscaler: Object, zero: Zero, now: datetime) -> float | None:
    """Seconds left of its progress deadline, never below 0; None while it is not starting."""
    starting = starting_for(pod_autoscaler, now)
    return None if starting is None else max(0.0, progress_deadline(pod_autoscaler, zero) - starting)


def progress_deadline(pod_autoscaler: Object, zero: Zero) -> float:
    """Seconds; the revision's annotation, else the installation's."""
    text = annotations_of(pod_autoscaler).get(PROGRESS_DEADLINE)
    try:
        return parse_duration(text) if text else zero.progress_deadline
    except ValueError:  # Knative's webhook refuses such a revision; one that slipped through gets the default
        return zero.progress_deadline
