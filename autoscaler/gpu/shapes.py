"""The GPUs of one replica, read from a Pod template. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from autoscaler.gpu.claims import Shape
from autoscaler.gpu.units import is_gpu, part_of_gpu, read_units, requested_by
from clusters.base.objects import NVIDIA_GPU, Object, annotations_of

ANNOTATION_WORKERS: Final = "knodel.dev/workers"
"""`serving.types.annotations.ANNOTATION_WORKERS`."""
ANNOTATION_TYPES: Final = "autoscaling.knodel.dev/gpu-types"
"""On PodAutoscalers: types of GPU, best first (`NVIDIA-H100-80GB-HBM3,NVIDIA-A100-SXM4-80GB`)."""
ANNOTATION_PRIORITY: Final = "autoscaling.knodel.dev/priority"
"""On PodAutoscalers: 0 to 1000; who gets GPUs first (`500`)."""
ANNOTATION_WEIGHT: Final = "autoscaling.knodel.dev/weight"
"""On PodAutoscalers: the share of GPUs relative to others of the same priority and namespace (`3`)."""


def shape_of(template: Object, types: str = "") -> Shape | None:
    """Return the GPUs of a replica with this Pod template and its worker Pods; None without GPUs.

    `types` is the value of `ANNOTATION_TYPES`. Of several kinds of GPU only the first one counts.
    """
    allowed = tuple(filter(None, (name.strip() for name in types.split(","))))
    if part := part_of_gpu(template):
        return Shape(NVIDIA_GPU, part, types=allowed, part=True)
    own = requested_by(template)
    count, beside = _workers(annotations_of({"metadata": {}, **template}).get(ANNOTATION_WORKERS, "{}"))
    resource = next((name for name in sorted({*own, *beside}) if is_gpu(name)), "")
    if not resource:
        return None
    spec = template.get("spec") or {}
    leader, worker = own.get(resource, 0), beside.get(resource, 0)
    return Shape(
        resource,
        max(leader, worker),
        bool(leader) + (count if worker else 0),
        allowed,
        dict(spec.get("nodeSelector") or {}),
        tuple(spec.get("tolerations") or ()),
    )


def _workers(text: str) -> tuple[int, Mapping[str, int]]:
    """Return the number of worker Pods of a replica, and the GPUs of one of them."""
    try:
        workers = json.loads(text)
        given = workers.get("resources") or {}
        gpus = read_units(given.get("gpu", 0))
        return int(workers.get("count", 0)), {str(given.get("gpuResource") or NVIDIA_GPU): gpus} if gpus else {}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, {}
