"""Validate annotations that Knative reads: their syntax and their ranges.

Source: knative/serving `pkg/apis/autoscaling/annotation_validation.go`, `pkg/apis/serving/metadata_validation.go` and
`pkg/apis/serving/v1/revision_validation.go`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from clusters.base.durations import parse_duration
from clusters.base.objects import ANNOTATION_CLASS
from clusters.embedded.knative import names
from tests.support.knative_webhook.checks import Faults

ALLOW_ZERO_INITIAL_SCALE = "allow-zero-initial-scale"  # flag of config-autoscaler

LARGEST_SCALE = 2**31 - 1  # int32
HOUR = 3600.0  # s, the longest window
KPA, HPA = names.CLASS_KPA, names.CLASS_HPA
_RESERVED_CLASSES = ".knative.dev"
_KPA_METRICS = ("concurrency", "rps")
_ALGORITHMS = ("", "linear", "weighted-exponential", "weightedExponential")

_NETWORKING = "networking.knative.dev"
_NETWORKING_KEYS = frozenset(
    f"{_NETWORKING}/{name}"
    for name in (
        "ingress-class", "ingress.class", "certificate-class", "certificate.class", "disable-auto-tls",
        "disableAutoTLS", "disable-external-domain-tls", "httpOption", "http-protocol",
    )
)  # fmt: skip
_QUEUE_PROXY = "queue.sidecar.serving.knative.dev"

_FLOATS = {
    "panic-window-percentage": (1.0, 100.0),
    "panic-threshold-percentage": (110.0, 1000.0),
    "target": (0.01, math.inf),
    "target-utilization-percentage": (1.0, 100.0),
}
_DURATIONS = {  # (minimum, maximum) in s, and whether only whole seconds are valid
    "window": (6.0, HOUR, True),
    "scale-down-delay": (0.0, HOUR, True),
    "scale-to-zero-pod-retention-period": (0.0, HOUR, False),
}


def check_autoscaling(faults: Faults, path: str, annotations: Mapping[str, str]) -> None:
    """Validate the annotations `autoscaling.knative.dev/…` of a template or a Revision."""
    values = {
        key.removeprefix(f"{names.AUTOSCALING_GROUP}/"): value
        for key, value in annotations.items()
        if key.startswith(f"{names.AUTOSCALING_GROUP}/") and isinstance(value, str)
    }
    _check_class(faults, path, values)
    _check_scales(faults, path, values)
    for name, (low, high) in _FLOATS.items():
        if name in values:
            _check_float(faults, _at(path, name), values[name], low, high)
    if "target-burst-capacity" in values and values["target-burst-capacity"] != "-1":
        _check_float(faults, _at(path, "target-burst-capacity"), values["target-burst-capacity"], 0.0, math.inf)
    for name, (low, high, whole) in _DURATIONS.items():
        if name in values:
            _check_duration(faults, _at(path, name), values[name], low, high, whole=whole)


def check_no_autoscaling(faults: Faults, path: str, annotations: Mapping[str, str]) -> None:
    """Reject autoscaling annotations on an object where they have no effect."""
    for key in annotations:
        if key.startswith(names.AUTOSCALING_GROUP):
            faults.add(
                f"{path}[{key}]",
                'autoscaling annotations must be put under "spec.template.metadata.annotations" to work',
            )


def check_other_components(faults: Faults, path: str, annotations: Mapping[str, str]) -> None:
    """Validate the annotations of a template for networking and for queue-proxy, although neither is implemented."""
    for key, value in annotations.items():
        if key.startswith(_NETWORKING) and key not in _NETWORKING_KEYS:
            faults.add(f"{path}[{key}]", "invalid key name: it is not an annotation of networking")
        elif key == f"{_QUEUE_PROXY}/resource-percentage":
            _check_float(faults, f"{path}[{key}]", value, 0.1, 100.0)
        elif key.startswith(f"{_QUEUE_PROXY}/"):
            faults.quantities(path, {key: value})


def check_seconds(faults: Faults, path: str, annotations: Mapping[str, str], key: str) -> None:
    """Validate an annotation, if present, that is a duration in whole seconds."""
    value = annotations.get(key)
    if isinstance(value, str) and value:
        _check_duration(faults, f"{path}[{key}]", value, 0.0, math.inf, whole=True)


def _check_class(faults: Faults, path: str, values: Mapping[str, str]) -> None:
    name = ANNOTATION_CLASS.rpartition("/")[2]
    kind = values.get(name, "")
    if kind.endswith(_RESERVED_CLASSES) and kind not in (KPA, HPA):
        faults.add(_at(path, name), f"invalid value: {kind!r}: use {KPA}, {HPA} or a class of another domain")
    if kind in ("", KPA) and values.get("metric", "concurrency") not in _KPA_METRICS:
        faults.add(_at(path, "metric"), f"invalid value: {values['metric']!r}: use one of {', '.join(_KPA_METRICS)}")
    if kind == KPA and values.get("metric-aggregation-algorithm", "") not in _ALGORITHMS:
        value = values["metric-aggregation-algorithm"]
        faults.add(_at(path, "metric-aggregation-algorithm"), f"invalid value: {value!r}")


def _check_scales(faults: Faults, path: str, values: Mapping[str, str]) -> None:
    least, most = (_scale(faults, path, values, name) for name in ("min-scale", "max-scale"))
    if most and least is not None and most < least:
        faults.add(_at(path, "max-scale"), f"max-scale={most} is less than min-scale={least}")
    initial = _scale(faults, path, values, "initial-scale")
    if "initial-scale" in values and initial == 0 and ALLOW_ZERO_INITIAL_SCALE not in faults.features:
        faults.add(_at(path, "initial-scale"), f"0 not allowed by cluster: {ALLOW_ZERO_INITIAL_SCALE} is off")
    activation = _scale(faults, path, values, "activation-scale")
    if activation is None:
        return
    if activation < max(2, least or 0):
        faults.add(_at(path, "activation-scale"), f"{activation} must be greater than 1 and at least min-scale")
    if most and activation > most:
        faults.add(_at(path, "activation-scale"), f"max-scale={most} is less than activation-scale={activation}")


def _scale(faults: Faults, path: str, values: Mapping[str, str], name: str) -> int | None:
    if name not in values:
        return None
    try:
        value = int(values[name])
    except ValueError:
        faults.add(_at(path, name), f"invalid value: {values[name]!r}: an integer is expected")
        return None
    if 0 <= value <= LARGEST_SCALE:
        return value
    faults.add(_at(path, name), f"expected 0 <= {value} <= {LARGEST_SCALE}")
    return None


def _check_float(faults: Faults, path: str, text: str, low: float, high: float) -> None:
    try:
        value = float(text)
    except ValueError:
        faults.add(path, f"invalid value: {text!r}: a number is expected")
        return
    if not low <= value <= high:  # also rejects NaN
        faults.add(path, f"expected {low:g} <= {text} <= {high:g}")


def _check_duration(faults: Faults, path: str, text: str, low: float, high: float, *, whole: bool) -> None:
    try:
        value = parse_duration(text, signed=True)
    except ValueError as error:
        faults.add(path, f"invalid value: {text!r}: {error}")
        return
    if not low <= value <= high:
        faults.add(path, f"expected {low:g}s <= {text} <= {high:g}s")
    elif whole and value != round(value):
        faults.add(path, f"{text} is not at second precision")


def _at(path: str, name: str) -> str:
    return f"{path}[{names.AUTOSCALING_GROUP}/{name}]"
