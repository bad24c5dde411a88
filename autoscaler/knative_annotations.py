"""Knative's own scaling annotations, for plain Knative Services that ask for our class.

Keys and meanings: knative.dev/serving `pkg/apis/autoscaling/register.go`; both spellings that Knative takes are read.
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
KNATIVE_UNLIMITED = 1_000  # replicas: max-scale 0 means no limit; ours is what a Model may ask for at most
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


def _share(text: str) -> float:
    return _number(text.removesuffix("%")) / PERCENT


def _limit(text: str) -> int:
    return _count(text) or KNATIVE_UNLIMITED


def _metric(text: str) -> str:
    if text not in (OUR_METRIC, ""):  # Knative's webhook writes "" for every class that is not its own
        raise ValueError(f"must be {OUR_METRIC}, the only metric of this class, not {text!r}")
    return text


@dataclass(frozen=True, slots=True)
class _Reader:
    """Annotation → one value; `model`: a Model says the same in its policy, which then speaks instead."""

    field: str
    keys: tuple[str, ...]
    read: Callable[[str], Any]
    model: bool = False


_READERS = (
    _Reader("min_replicas", ("min-scale", "minScale"), _count, model=True),
    _Reader("max_replicas", ("max-scale", "maxScale"), _limit, model=True),
    _Reader("scale_target", ("target",), _number, model=True),
    _Reader("target_utilization", ("target-utilization-percentage", "targetUtilizationPercentage"), _share, model=True),
    _Reader("metric", ("metric",), _metric, model=True),
    _Reader("retention", ("scale-to-zero-pod-retention-period", "scaleToZeroPodRetentionPeriod"), _seconds, True),
    _Reader("initial_scale", ("initial-scale", "initialScale"), _count),
    _Reader("activation_scale", ("activation-scale", "activationScale"), _count),
    _Reader("scale_down_delay", ("scale-down-delay", "scaleDownDelay"), _seconds),
    _Reader("stable_window", ("window",), _seconds),
    _Reader("target_burst_capacity", ("target-burst-capacity", "targetBurstCapacity"), _number),
)


def read_knative(annotations: Mapping[str, str], *, beside_policy: bool) -> tuple[dict[str, Any], list[FieldError]]:
    """Values by field name of `Policy`, and what could not be read.

    `beside_policy`: only what a Model's policy does not say; else with Knative's defaults, and to zero after a stable
    window that saw nothing and the retention period behind it (`pkg/reconciler/autoscaling/kpa/scaler.go`).
    """
    values: dict[str, Any] = {}
    errors: list[FieldError] = []
    for reader in _READERS:
        if not (beside_policy and reader.model):
            _read_one(annotations, reader, values, errors)
    if beside_policy:
        return values, errors
    idle = values.get("stable_window", KNATIVE_WINDOW) + values.pop("retention", 0.0)
    values.pop("metric", None)
    defaults = {"max_replicas": KNATIVE_UNLIMITED, "scale_target": KNATIVE_TARGET, "scale_to_zero_after": idle}
    return defaults | values, errors


def _read_one(
    annotations: Mapping[str, str], reader: _Reader, values: dict[str, Any], errors: list[FieldError]
) -> None:
    for key in reader.keys:
        text = annotations.get(PREFIX + key)
        if text is None:
            continue
        try:
            values[reader.field] = reader.read(text)
        except ValueError as error:
            errors.append(FieldError(PREFIX + key, str(error)))
        return
