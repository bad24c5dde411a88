"""`knodel explain --replay`: repeat the last scaling decisions from their recorded inputs, or with another policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoscaler.scaling.replay import COLUMNS, INPUTS_ANNOTATION, Replayed, replay
from autoscaler.types import AUTO, Policy, read_entries
from clusters.base.durations import parse_duration
from clusters.base.objects import Object, name_of
from serving.client.errors import UsageError

AUTO_TEXT = "auto"
POLICY_FIELDS: Mapping[str, str] = {
    "minReplicas": "min_replicas",
    "maxReplicas": "max_replicas",
    "scaleTarget": "scale_target",
    "targetUtilization": "target_utilization",
    "scaleToZeroAfter": "scale_to_zero_after",
    "latencyObjective": "latency_objective",
    "initialScale": "initial_scale",
    "activationScale": "activation_scale",
    "scaleDownDelay": "scale_down_delay",
}
WHOLE = frozenset({"minReplicas", "maxReplicas", "initialScale", "activationScale"})
SECONDS = frozenset({"scaleToZeroAfter", "latencyObjective", "scaleDownDelay"})


def parse_changes(texts: Sequence[str]) -> dict[str, float]:
    """Parse texts such as `scaleTarget=8` into column → value, and validate them as the policy of a Model.

    Raises UsageError with the field.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or name not in COLUMNS:
            raise UsageError(f"--with {text} is not FIELD=VALUE: FIELD is one of {', '.join(COLUMNS)}")
        found[name] = _number(name, value)
    policy: dict[str, Any] = {POLICY_FIELDS[name]: value for name, value in found.items()}
    if "minReplicas" in found and "maxReplicas" not in found:
        policy["max_replicas"] = max(found["minReplicas"], Policy().max_replicas)
    for error in Policy(**policy).validate():
        raise UsageError(f"--with {error}")
    return {COLUMNS[name]: value for name, value in found.items()}


def replays(
    autoscalers: Sequence[Object], changes: Mapping[str, float]
) -> Iterator[tuple[str, Mapping[str, Any], Replayed]]:
    """Yield (revision, recorded inputs, repeated decision) of every recorded decision, oldest first.

    Raises NoReplay.
    """
    kept = [(name_of(one), entry) for one in autoscalers for entry in read_entries(one, INPUTS_ANNOTATION)]
    for revision, entry in sorted(kept, key=lambda pair: str(pair[1].get("at", ""))):
        yield revision, entry, replay(entry, changes)


def lines_of(revision: str, entry: Mapping[str, Any], made: Replayed, *, changed: bool) -> Iterator[str]:
    """Return the lines for one decision: the recorded and the repeated number of replicas, and all stages."""
    then = entry.get("to")
    verdict = "replayed with the same result" if made.desired == then else f"replayed: {made.desired}"
    if made.desired != then and not changed:
        verdict += ", since the rules have changed"
    yield f"{entry.get('at')}  {revision}  {entry.get('from')} → {then}, {verdict}"
    for step in made.steps:
        text = f"{step.before} → {step.after}  {step.message}" if step.message else f"{step.after}"
        yield f"  {step.rule:<26} {text}"


def value_of(revision: str, entry: Mapping[str, Any], made: Replayed) -> dict[str, Any]:
    """Return the JSON value for one decision."""
    steps = [{name: value for name, value in dataclasses.asdict(step).items() if value != ""} for step in made.steps]
    return {"at": entry.get("at"), "revision": revision, "from": entry.get("from"), "to": entry.get("to"),
            "replayed": made.desired, "steps": steps}  # fmt: skip


def _number(name: str, text: str) -> float:
    if name == "scaleToZeroAfter" and text == AUTO_TEXT:
        return AUTO
    try:
        if name in SECONDS:
            return parse_duration(text)
        return int(text) if name in WHOLE else float(text)
    except ValueError as error:
        wanted = "a duration such as 60s" if name in SECONDS else "a number"
        raise UsageError(f"--with {name}={text[:40]} is not valid: give {wanted}") from error
