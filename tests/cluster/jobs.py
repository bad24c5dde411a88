"""Jobs whose Pods request units of a resource, elastic by Knodel's annotation or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.gpu.elastic import ANNOTATION_ELASTIC
from clusters.base.objects import Object

NO_IMAGE = "dev.local/none:1"
"""For Pods that are objects only."""
GRACE = 5
"""s for a worker to end."""


def make_job(
    name: str,
    namespace: str,
    size: int,
    amounts: Mapping[str, str],
    *,
    elastic: tuple[int, int] | None = None,
    image: str = NO_IMAGE,
    command: Sequence[str] = (),
    **pod: Any,
) -> Object:
    """Return a Job of so many workers; `elastic` are the fewest and the most. `pod` are fields of the Pod's spec."""
    container: Object = {"name": "worker", "image": image, "resources": {"requests": amounts, "limits": amounts}}
    if command:
        container["command"] = list(command)
    bounds = {} if elastic is None else {ANNOTATION_ELASTIC: json.dumps({"min": elastic[0], "max": elastic[1]})}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": GRACE, **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": bounds},
        "spec": {"parallelism": size, "backoffLimit": 100_000, "template": {"spec": spec}},
    }
