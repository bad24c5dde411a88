"""Knative's scaling annotations, read from plain Knative Services that use our class.

Keys and meanings: knative.dev/serving `pkg/apis/autoscaling/register.go`. Both spellings that Knative accepts are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.base.durations import parse_duration
from clusters.base.errors import FieldError

PREFIX = "autoscaling.knative.dev/"
TARGET = f"{PREFIX}target"
PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"  # "600s"; Knative copies it from Revision to PodAutoscaler

KNATIVE_TARGET = 100.0  # requests: container-concurrency-target-default of config-autoscaler
KNATIVE_UNLIMITED = 1_000  # replicas: Knative's max-scale 0 means no limit; this is the limit of a Model
KNATIVE_WINDOW = 60.0  # s: stable-window of config-autoscaler
OUR_METRIC = "concurrency"
PERCENT = 100.0


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"{error}, not {text!r}") from None


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, not {text!r}") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number, not {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"must be a finite number, not {text!r}")
    return value


def _metric(text: str) -> str:
    if text not in (OUR_METRIC, ""):  # Knative's webhook writes "" for every class but its own
        raise ValueError(f"must be {OUR_METRIC}, the only metric of this class, not {text!r}")
    return text


@dataclass(frozen=True, slots=True)
class _Reader:
    """A field and the annotations that set it. `model`: a Model's policy sets this field and takes precedence."""

    field: str
    keys: tuple[str, ...]
    read: Callable[[str], Any]
    model: bool = False


_READERS = (
    _Reader("min_replicas", ("min-scale", "minScale"), _count, model=True),
    _Reader("max_replicas", ("max-scale", "maxScale"), lambda text: _count(text) or KNATIVE_UNLIMITED, model=True),
    _Reader("scale_target", ("target",), _number, model=True),
    _Reader(
        "target_utilization",
        ("target-utilization-percentage", "targetUtilizationPercentage"),
        lambda text: _number(text.removesuffix("%")) / PERCENT,
        model=True,
    ),
    _Reader("metric", ("metric",), _metric, model=True),
    _Reader("retention", ("scale-to-zero-pod-retention-period", "scaleToZeroPodRetentionPeriod"), _seconds, True),
    _Reader("initial_scale", ("initial-scale", "initialScale"), _count),
    _Reader("activation_scale", ("activation-scale", "activationScale"), _count),
    _Reader("scale_down_delay", ("scale-down-delay", "scaleDownDelay"), _seconds),
    _Reader("stable_window", ("window",), _seconds),
    _Reader("target_burst_capacity", ("target-burst-capacity", "targetBurstCapacity"), _number),
)


def read_knative(annotations: Mapping[str, str], *, beside_policy: bool) -> tuple[dict[str, Any], list[FieldError]]:
    """Return values by field name of `Policy`, and the errors of unreadable annotations.

    With `beside_policy`, only fields that a Model's policy cannot set are read. Otherwise Knative's defaults apply, and
    the last replica is removed after an idle stable window plus the retention period
    (`pkg/reconciler/autoscaling/kpa/scaler.go`).
    """
    values: dict[str, Any] = {}
    errors: list[FieldError] = []
    for reader in _READERS:
        if beside_policy and reader.model:
            continue
        key = next((PREFIX + key for key in reader.keys if PREFIX + key in annotations), None)
        if key is not None:
            try:
                values[reader.field] = reader.read(annotations[key])
            except ValueError as error:
                errors.append(FieldError(key, str(error)))
    if beside_policy:
        return values, errors
    idle = values.get("stable_window", KNATIVE_WINDOW) + values.pop("retention", 0.0)
    values.pop("metric", None)
    defaults = {"max_replicas": KNATIVE_UNLIMITED, "scale_target": KNATIVE_TARGET, "scale_to_zero_after": idle}
    return defaults | values, errors
