"""Make the scaling policy of a Model, as an annotation of its PodAutoscalers. Pure."""

from __future__ import annotations

from autoscaler.types import POLICY_ANNOTATION, Policy
from autoscaler.usage.meter import CANARY_ANNOTATION
from clusters.base.objects import Object
from serving.types.scaling import Scaling


def make_policy(scaling: Scaling, container_concurrency: int) -> str:
    """Return the value of the annotation for a revision. As in Knative, its hard limit bounds the scale target."""
    target = min(scaling.scale_target, container_concurrency) if container_concurrency else scaling.scale_target
    return Policy(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        scale_target=float(target),
        target_utilization=scaling.target_utilization,
        scale_to_zero_after=scaling.scale_to_zero_after,
        hold_queue=scaling.hold_queue,
        latency_objective=scaling.latency_objective,
        schedules=scaling.schedules,
    ).to_json()


def make_policy_patch(policy: str, *, canary: str | None = None) -> Object:
    """Return the merge patch that sets the policy on a PodAutoscaler, and sets or removes the mark of a canary."""
    return {"metadata": {"annotations": {POLICY_ANNOTATION: policy, CANARY_ANNOTATION: canary}}}
