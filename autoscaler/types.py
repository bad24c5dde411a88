"""The scaling policy of a PodAutoscaler of our class: where it is written, how it is read and validated.

The scaling fields of a Model travel as one JSON annotation on the PodAutoscaler (`POLICY_ANNOTATION`). A plain Knative
Service of our class has no such annotation; for it, Knative's annotations are read with Knative's defaults
(https://knative.dev/docs/serving/autoscaling/). Settings for a single revision (initial and activation scale, window,
delay, burst capacity) come from Knative's annotations in both cases, unless the policy contains them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from autoscaler.knative_annotations import read_knative
from autoscaler.schedules import InvalidSchedules, Schedule, read_schedules
from clusters.base.errors import FieldError, KnodelError
from clusters.base.objects import ANNOTATION_CLASS, Object, annotations_of

CLASS = "gpu.autoscaling.knodel.dev"
"""Value of the annotation `autoscaling.knative.dev/class` on PodAutoscalers that this autoscaler scales.

The class scales on concurrent requests per replica, the figure that a GPU bounds. Models without a GPU use it as well.
"""

POLICY_ANNOTATION = "autoscaling.knodel.dev/policy"
"""On the PodAutoscaler: `{"minReplicas":0,"maxReplicas":4,"scaleTarget":4,"targetUtilization":0.7,
"scaleToZeroAfter":-1.0,"holdQueue":1000,"latencyObjective":0.5,"schedules":[{"cron":"0 8 * * 1-5","timeZone":
"Europe/Berlin","duration":36000.0,"minReplicas":2}]}` (seconds as numbers; `scaleToZeroAfter` -1 is auto)."""

DECISIONS_ANNOTATION = "autoscaling.knodel.dev/decisions"
"""On the PodAutoscaler: the last 20 decisions, oldest first, `[{"at":"2026-01-01T00:00:00Z","from":0,"to":1,
"reasons":[{"rule":"Waiting","message":"…","values":{…}}]}]`; at most one write a second."""

LOADED_ANNOTATION = "autoscaling.knodel.dev/loaded-digest"
"""On the PodAutoscaler: the digest of the files that the revision's first replica loaded (`sha256:9f…`); written once.
"""

HELD_ANNOTATION = "autoscaling.knodel.dev/held-to-digest"
"""On the PodAutoscaler, written by the controller of Models: the digest that later replicas must load."""

RESTART_ANNOTATION = "autoscaling.knodel.dev/restart"
"""On the PodAutoscaler, written by the controller of Models: the Pods to replace one after another (`NAME,NAME`)."""

ADAPTERS_ANNOTATION = "autoscaling.knodel.dev/adapters"
"""On the PodAutoscaler of a language model that loads adapters while it serves, written by the controller of Models:
the adapters of the revision (`{"id":"9f2c4a81d0","adapters":[{"name":"legal","uri":"s3://models/legal/3/"}]}`)."""

LARGEST = 1e15  # of any number; larger ones might not fit a float
MAX_REPLICAS = 1_000  # limit of a Model, and the value for a Knative Service without max-scale
Entry = dict[str, Any]
"""A recorded decision, or a recorded start of a replica."""
ALWAYS_PROXY = -1.0  # targetBurstCapacity: the activator is always in the path, as in Knative
AUTO = -1.0
"""scaleToZeroAfter: derived from the start time (equal to `scaling.table.AUTO`, repeated here to avoid importing
numpy).
"""
LEAST_IDLE, LONGEST_IDLE = 1.0, 7 * 86_400.0  # s: range of scaleToZeroAfter, unless AUTO
LEAST_OBJECTIVE, LONGEST_OBJECTIVE = 0.001, 3_600.0
"""Seconds; a latency objective below a millisecond is a typing error."""

SCHEDULES = "schedules"
_JSON_NAMES = {
    "minReplicas": "min_replicas",
    "maxReplicas": "max_replicas",
    "scaleTarget": "scale_target",
    "targetUtilization": "target_utilization",
    "scaleToZeroAfter": "scale_to_zero_after",
    "holdQueue": "hold_queue",
    "latencyObjective": "latency_objective",
    "initialScale": "initial_scale",
    "activationScale": "activation_scale",
    "scaleDownDelay": "scale_down_delay",
    "stableWindow": "stable_window",
    "targetBurstCapacity": "target_burst_capacity",
}
_INTEGERS = frozenset({"min_replicas", "max_replicas", "hold_queue", "initial_scale", "activation_scale"})
_MODEL_FIELDS = frozenset(
    {"min_replicas", "max_replicas", "scale_target", "target_utilization", "scale_to_zero_after", "hold_queue"}
)


class InvalidPolicy(KnodelError):
    """Raised for an invalid scaling policy; `causes` lists every invalid field."""

    def __init__(self, causes: Sequence[FieldError]) -> None:
        super().__init__("invalid scaling policy: " + "; ".join(str(cause) for cause in causes))
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Policy:
    """The scaling policy of one revision. Durations are in seconds, work is in slots. Defaults are those of a Model."""

    min_replicas: int = 0
    max_replicas: int = 4
    scale_target: float = 4.0  # slots: concurrent work that one replica should hold (soft limit)
    target_utilization: float = 0.7  # share of its slots that a replica should use on average
    scale_to_zero_after: float = AUTO  # s without work until the last replica is removed
    hold_queue: int = 1_000  # requests held during a start; enforced by the gateway, not here
    initial_scale: int = 1  # replicas that must be ready once before the revision is ready
    activation_scale: int = 1  # minimum replicas when it leaves zero
    scale_down_delay: float = 0.0  # s for which fewer replicas must have been enough before a scale-down
    stable_window: float = 60.0  # s over which work is averaged
    target_burst_capacity: float = 0.0  # free slots below which the activator is in the path; -1: always in the path
    latency_objective: float = 0.0  # s within which 95 % of the responses should be given; 0: no objective
    schedules: tuple[Schedule, ...] = ()  # minimum replicas during time windows, up to `max_replicas`

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, str]) -> Policy:
        """Return the policy of a PodAutoscaler with these annotations. Raises InvalidPolicy that names every invalid
        field.
        """
        text = annotations.get(POLICY_ANNOTATION)
        values, errors = read_knative(annotations, beside_policy=text is not None)
        if text is not None:
            document, refused = _read_json(text)
            values, errors = values | document, errors + refused
        if errors:
            raise InvalidPolicy(errors)
        policy = cls(**values)
        if errors := policy.validate():
            raise InvalidPolicy(errors)
        return policy

    def validate(self) -> list[FieldError]:
        """Return an error for every field that is out of range."""
        checks = (
            (0 <= self.min_replicas <= MAX_REPLICAS, "minReplicas", f"must be from 0 to {MAX_REPLICAS}"),
            (1 <= self.max_replicas <= MAX_REPLICAS, "maxReplicas", f"must be from 1 to {MAX_REPLICAS}"),
            (self.min_replicas <= self.max_replicas, "minReplicas", f"must be ≤ maxReplicas ({self.max_replicas})"),
            (0.01 <= self.scale_target <= 1e6, "scaleTarget", "must be from 0.01 to 1000000 slots"),
            (0.01 <= self.target_utilization <= 1, "targetUtilization", "must be from 0.01 to 1"),
            (
                self.scale_to_zero_after == AUTO or LEAST_IDLE <= self.scale_to_zero_after <= LONGEST_IDLE,
                "scaleToZeroAfter",
                "must be from 1 s to 7 days, or -1 for auto",
            ),
            (
                self.latency_objective == 0 or LEAST_OBJECTIVE <= self.latency_objective <= LONGEST_OBJECTIVE,
                "latencyObjective",
                "must be from 0.001 s to 3600 s, or 0 for none",
            ),
            (0 <= self.hold_queue <= 1e6, "holdQueue", "must be from 0 to 1000000"),
            (0 <= self.initial_scale <= MAX_REPLICAS, "initialScale", f"must be from 0 to {MAX_REPLICAS}"),
            (1 <= self.activation_scale <= MAX_REPLICAS, "activationScale", f"must be from 1 to {MAX_REPLICAS}"),
            (0 <= self.scale_down_delay <= 3_600, "scaleDownDelay", "must be from 0 s to 1 h"),
            (6 <= self.stable_window <= 3_600, "stableWindow", "must be from 6 s to 1 h"),
            (
                self.target_burst_capacity == ALWAYS_PROXY or 0 <= self.target_burst_capacity <= 1e9,
                "targetBurstCapacity",
                "must be ≥ 0, or -1 for always",
            ),
        )
        return [
            FieldError(path, f"{message}, not {getattr(self, _JSON_NAMES[path])}")
            for ok, path, message in checks
            if not ok
        ]

    def to_json(self) -> str:
        """Return the value of `POLICY_ANNOTATION`: a Model's fields, and the others where they differ from their
        defaults.
        """
        default = {field.name: field.default for field in fields(self)}
        document: dict[str, Any] = {
            key: getattr(self, name)
            for key, name in _JSON_NAMES.items()
            if name in _MODEL_FIELDS or getattr(self, name) != default[name]
        }
        if self.schedules:
            document[SCHEDULES] = [schedule.to_json() for schedule in self.schedules]
        return json.dumps(document, separators=(",", ":"))


def effective_policy(pod_autoscaler: Object) -> Policy:
    """Return the policy of a PodAutoscaler, or the default policy if it is invalid, for readers that must not fail."""
    try:
        return Policy.from_annotations(annotations_of(pod_autoscaler))
    except InvalidPolicy:
        return Policy()


def read_entries(pod_autoscaler: Object, annotation: str) -> list[Entry]:
    """Return the entries of an annotation that the autoscaler writes for users, oldest first; empty when it is
    unreadable.
    """
    try:
        entries = json.loads(annotations_of(pod_autoscaler).get(annotation, "[]"))
    except (ValueError, RecursionError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def is_ours(pod_autoscaler: Object) -> bool:
    """Return whether this PodAutoscaler is of our class."""
    return annotations_of(pod_autoscaler).get(ANNOTATION_CLASS) == CLASS


def _read_json(text: str) -> tuple[dict[str, Any], list[FieldError]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, [FieldError(POLICY_ANNOTATION, f"is not JSON ({error})")]
    if not isinstance(document, dict):
        return {}, [FieldError(POLICY_ANNOTATION, "must be a JSON object")]
    values: dict[str, Any] = {}
    errors: list[FieldError] = []
    if SCHEDULES in document:
        try:
            values["schedules"] = read_schedules(document.pop(SCHEDULES))
        except InvalidSchedules as error:
            errors += error.causes
    for key, value in document.items():
        name = _JSON_NAMES.get(key)
        if name is None:
            errors.append(FieldError(key, "is not a field of a scaling policy"))
        elif isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LARGEST:
            errors.append(FieldError(key, f"must be a number, not {json.dumps(value)}"))
        elif name in _INTEGERS and value != value // 1:
            errors.append(FieldError(key, f"must be a whole number, not {value}"))
        else:
            values[name] = int(value) if name in _INTEGERS else float(value)
    return values, errors
