"""Knative's autoscaling annotations, and other metadata that InferenceServices and Knative Services share. Pure."""

from __future__ import annotations

from typing import Any, Final

from serving.importing.conversion import FieldPath, ForeignObject, NotConverted, Rule

AUTOSCALING: Final = "autoscaling.knative.dev/"
VISIBILITY: Final = ("networking.knative.dev/visibility", "networking.kserve.io/visibility")
NUMBERS: Final = {
    "min-scale": "minReplicas", "minScale": "minReplicas", "max-scale": "maxReplicas", "maxScale": "maxReplicas",
}  # fmt: skip
RUN_BY_CLUSTER: Final = "set by the cluster that the object was read from"
METADATA_RULES: Final = (
    *(
        Rule(("metadata", name), RUN_BY_CLUSTER)
        for name in (
            "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields",
            "selfLink", "ownerReferences", "finalizers", "generateName",
        )
    ),
    Rule(("status",), RUN_BY_CLUSTER),
    Rule(("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"), RUN_BY_CLUSTER),
    Rule(("metadata", "annotations", "serving.knative.dev/*"), RUN_BY_CLUSTER),
    Rule(("metadata", "annotations", "prometheus.io/*"), "Prometheus finds the replicas by the platform's annotations"),
)  # fmt: skip
"""Rules for metadata of both kinds."""


def take_metadata(made: ForeignObject) -> None:
    """Carry name, namespace, labels and visibility. Raises NotConverted without a name."""
    for field in ("apiVersion", "kind"):
        made.take((field,), field)
    name = made.text(("metadata", "name"), "metadata.name")
    if not name:
        raise NotConverted("metadata.name is missing", "write a name")
    made.metadata["name"] = name
    namespace = made.text(("metadata", "namespace"), "metadata.namespace")
    if namespace:
        made.metadata["namespace"] = namespace
    labels = made.get("metadata", "labels")
    for label, value in labels.items() if isinstance(labels, dict) else ():
        path = ("metadata", "labels", label)
        if label in VISIBILITY:
            made.carry(path, "visibility", value if value == "cluster-local" else "public")
        elif isinstance(value, str):
            made.metadata.setdefault("labels", {})[label] = value
            made.take(path, "metadata.labels")


def take_autoscaling(made: ForeignObject, at: FieldPath) -> None:
    """Carry Knative's autoscaling annotations of the mapping at a path, if the spec does not set the fields."""
    annotations = made.get(*at)
    given: dict[str, Any] = annotations if isinstance(annotations, dict) else {}
    metric = given.get(f"{AUTOSCALING}metric", "concurrency")
    scaled_by = str(given.get(f"{AUTOSCALING}class", "kpa.autoscaling.knative.dev"))
    for name, to in NUMBERS.items():
        value = _whole(given.get(f"{AUTOSCALING}{name}"))
        if value is not None and to not in made.spec and (value or to == "minReplicas"):
            made.carry((*at, f"{AUTOSCALING}{name}"), to, value)
    if metric == "concurrency" and scaled_by.startswith("kpa."):
        made.drop((*at, f"{AUTOSCALING}metric"), "concurrency is the only metric of the scale target")
        made.drop((*at, f"{AUTOSCALING}class"), "the platform's autoscaler replaces Knative's")
        target = _number(given.get(f"{AUTOSCALING}target"))
        if target is not None and "scaleTarget" not in made.spec:
            made.carry((*at, f"{AUTOSCALING}target"), "scaleTarget", target)
        percent = _number(given.get(f"{AUTOSCALING}target-utilization-percentage"))
        if percent is not None:
            made.carry((*at, f"{AUTOSCALING}target-utilization-percentage"), "targetUtilization", percent / 100)
    retention = given.get(f"{AUTOSCALING}scale-to-zero-pod-retention-period")
    if isinstance(retention, str):
        made.carry((*at, f"{AUTOSCALING}scale-to-zero-pod-retention-period"), "scaleToZeroAfter", retention)
    made.drop((*at, f"{AUTOSCALING}initial-scale"), "a version starts with one replica")


def _number(value: Any) -> float | None:
    """Return a positive number, of a text too; a whole one as int. None for anything else."""
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        return None
    if not 0 < number < 1e9:
        return None
    return int(number) if number.is_integer() else number


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and not isinstance(value, bool) else None
