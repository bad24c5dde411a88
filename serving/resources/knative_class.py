"""Scaling by Knative's own autoscaler class while ours does not scale on Kubernetes: its template annotations. Pure.

With it a change of a scaling field makes a revision, which a Model does not promise. That is why the setting
`knative.autoscalerClass` is internal; this file and its one call go away together with it.
"""

from __future__ import annotations

from serving.apis.model import ModelSpec
from serving.apis.settings import KNATIVE_CLASS

PREFIX = "autoscaling.knative.dev/"
LEAST_WINDOW = 6
"""s (`WindowMin` in knative/serving `pkg/apis/autoscaling/register.go`)."""
MOST_WINDOW = 3600
"""s (`WindowMax`)."""
PERCENT = 100


def scaling_annotations(spec: ModelSpec, autoscaler_class: str) -> dict[str, str]:
    """What the template says of scaling: nothing for our class.

    An idle revision goes to zero once its stable window is empty, so `scaleToZeroAfter` is the window.
    """
    if autoscaler_class != KNATIVE_CLASS:
        return {}
    scaling = spec.scaling
    limit = spec.container_concurrency
    target = min(scaling.scale_target, limit) if limit else scaling.scale_target
    window = min(max(round(scaling.scale_to_zero_after), LEAST_WINDOW), MOST_WINDOW)
    said = {
        "metric": "concurrency",
        "min-scale": f"{scaling.min_replicas}",
        "max-scale": f"{scaling.max_replicas}",
        "target": f"{target:g}",
        "target-utilization-percentage": f"{max(1.0, scaling.target_utilization * PERCENT):g}",
        "window": f"{window}s",
        "scale-to-zero-pod-retention-period": "0s",
    }
    return {PREFIX + key: value for key, value in said.items()}
