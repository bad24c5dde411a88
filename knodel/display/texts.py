"""The text of each kind of result, as a terminal shows it: one line for one thing, a table for several. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from clusters.base.redact import escape_terminal
from knodel.display.numbers import outcome_text, short_digest, short_time
from knodel.results.chat import Chat
from knodel.results.explanation import Explanation
from knodel.results.model import Model, ModelHistory, ModelList, ModelNoticeList, TrafficSplit
from knodel.results.prediction import Prediction
from knodel.results.rollout import RolloutStep

MAX_ROWS: Final = 5
"""Rows of a prediction that are shown."""


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return _TEXTS[type(result)](result)


def _model(model: Model) -> str:
    state = "ready" if model.ready else f"not ready: {model.reason}"
    version = f", newest version {model.version}" if model.version else ""
    counts = f"{model.replicas.ready} of {model.replicas.desired} replicas ready"
    traffic = f", {_split(model.traffic)}" if len(model.traffic) else ""
    return f"Model {model.namespace}/{model.name}: {state}{version}, {counts}{traffic}"


def _models(models: ModelList) -> str:
    rows = [
        [model.name, model.namespace, "ready" if model.ready else "not ready", model.version, _split(model.traffic),
         f"{model.replicas.ready}/{model.replicas.desired}"]
        for model in models
    ]  # fmt: skip
    return _table(["name", "namespace", "status", "newest version", "traffic", "replicas"], rows, "no models")


def _history(history: ModelHistory) -> str:
    rows = [
        [one.revision, one.version, outcome_text(one.outcome), one.cause, short_time(one.at), short_digest(one.digest)]
        for one in history
    ]
    return _table(["revision", "version", "outcome", "cause", "made", "digest"], rows, "no versions")


def _notices(notices: ModelNoticeList) -> str:
    rows = [
        [short_time(one.at), one.type, one.reason, one.message, str(one.count) if one.count > 1 else ""]
        for one in notices
    ]
    return _table(["at", "type", "reason", "message", "times"], rows, "no events")


def _split(split: TrafficSplit) -> str:
    return ", ".join(f"{target.percent} % {target.revision}" for target in split) or "no traffic"


def _step(step: RolloutStep) -> str:
    place = f"step {step.number}" + (f" of {step.count}" if step.count else "")
    judge = f", judge: {step.decision}" if step.decision else ""
    reasons = f" ({'; '.join(step.reasons)})" if step.reasons else ""
    return f"Rollout of {step.model}: {step.phase}, {place}, {step.percent} % {step.candidate}{judge}{reasons}"


def _explanation(explanation: Explanation) -> str:
    model = explanation.model
    found = [_model(model), f"traffic: {explanation.rule}"]
    found += [f"rollout: {_step(model.rollout)}"] if model.rollout is not None else []
    found += [
        f"{short_time(one.at)}  {one.revision}  {one.before} → {one.after}  {'; '.join(one.reasons)}"
        for one in explanation.decisions
    ]
    for start in explanation.starts:
        steps = ", ".join(f"{step.name} {step.milliseconds:g}" for step in start.steps)
        took = "" if start.milliseconds is None else f" in {start.milliseconds:g} ms"
        found.append(f"{short_time(start.at)}  {start.replica}  {start.kind} start{took}: {steps}")
    return "\n".join([*found, *explanation.problems, *explanation.notes])


def _prediction(answer: Prediction) -> str:
    outputs = "".join(
        f"\n{one.name} {one.datatype} {list(one.shape)}: {one.values[:MAX_ROWS] if one.shape else one.values}"
        + (" …" if one.shape and one.shape[0] > MAX_ROWS else "")
        for one in answer.outputs
    )
    by = f" ({answer.revision})" if answer.revision else ""
    return f"Prediction of {answer.model}{by} in {answer.seconds * 1000:.1f} ms{outputs}"


def _chat(answer: Chat) -> str:
    by = f" ({answer.revision})" if answer.revision else ""
    return f"Answer of {answer.model}{by}{_tokens(answer)}\n{escape_terminal(answer.text)}"


def _tokens(answer: Chat) -> str:
    tokens = answer.usage.get("completion_tokens")
    count = "" if tokens is None else f": {tokens} tokens"
    return f"{count}, cut off at the limit of tokens" if answer.finish_reason == "length" else count


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> str:
    """Return aligned columns, without those that are empty in each row."""
    if not rows:
        return empty
    kept = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    cells = [[heads[index].upper() for index in kept], *([row[index] for index in kept] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )  # fmt: skip
    return "\n".join(padded)


_TEXTS: Final[dict[type, Callable[[Any], str]]] = {
    Model: _model,
    ModelList: _models,
    ModelHistory: _history,
    ModelNoticeList: _notices,
    TrafficSplit: _split,
    RolloutStep: _step,
    Explanation: _explanation,
    Prediction: _prediction,
    Chat: _chat,
}
