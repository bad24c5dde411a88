"""The HTML of each kind of result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from knodel.display.html import (
    BAD,
    GOOD,
    WAITING,
    Html,
    Part,
    bar,
    colour,
    element,
    facts,
    joined,
    lines,
    muted,
    page,
    section,
    sparkline,
    status,
    table,
)  # fmt: skip
from knodel.display.numbers import milliseconds, outcome_text, share, short_digest, short_time, short_uri
from knodel.results.chat import Chat
from knodel.results.explanation import Explanation, ReplicaStart
from knodel.results.model import Model, ModelHistory, ModelList, ModelNoticeList, ModelVersion, TrafficSplit
from knodel.results.prediction import Prediction, PredictionOutput
from knodel.results.rollout import RolloutStep
from serving.reconciler.rollout.judging.counts import from_json

MAX_ROWS: Final = 20  # of a prediction that are shown
MAX_COLUMNS: Final = 12
_PHASES: Final = {"Promoted": GOOD, "Progressing": WAITING, "Paused": WAITING}
_DECISIONS: Final = {"pass": GOOD, "fail": BAD}
_OUTCOMES: Final = {"promoted": GOOD, "rolledback": BAD, "failed": BAD}


def html_of(result: Any) -> Html:
    """Return the HTML of a result."""
    return _PAGES[type(result)](result)


def _model(model: Model) -> Html:
    return page(
        f"Model {model.name}",
        facts(
            [
                ("status", _ready(model)),
                ("namespace", model.namespace),
                ("newest version", " ".join(filter(None, (model.version, model.newest and f"({model.newest})")))),
                ("replicas", _replicas(model)),
                ("format", model.format),
                ("files", joined(short_uri(model.storage_uri), " ", muted(short_digest(model.digest)))),
                ("URL", model.url),
            ]
        ),
        section("traffic", _traffic_bar(model.traffic)) if len(model.traffic) else "",
        section("rollout", _step(model.rollout)) if model.rollout is not None else "",
    )


def _models(models: ModelList) -> Html:
    heads = ["name", "namespace", "status", "newest version", "traffic", "replicas", "format"]
    rows = [
        [model.name, model.namespace, _ready(model), model.version, _traffic_bar(model.traffic, legend=False),
         _replicas(model), model.format]
        for model in models
    ]  # fmt: skip
    return page("Models", table(heads, rows, "no models"))


def _history(history: ModelHistory) -> Html:
    return page(f"Versions of {history.model}", table(
        ["revision", "version", "outcome", "cause", "made", "all traffic", "digest", "files"],
        [
            [one.revision, one.version, _outcome(one), one.cause, short_time(one.at), short_time(one.promoted_at),
             short_digest(one.digest), short_uri(one.storage_uri)]
            for one in history
        ],
        "no versions",
    ))  # fmt: skip


def _notices(notices: ModelNoticeList) -> Html:
    return page(f"Events of {notices.model}", table(
        ["at", "type", "reason", "message", "times"],
        [
            [short_time(one.at), one.type if one.type == "Normal" else status(one.type, BAD), one.reason, one.message,
             one.count if one.count > 1 else ""]
            for one in notices
        ],
        "no events",
    ))  # fmt: skip


def _split(split: TrafficSplit) -> Html:
    return page("Traffic", _traffic_bar(split) if len(split) else muted("none, since no version has been ready yet"))


def _rollout(step: RolloutStep) -> Html:
    shares = ((step.stable, 100 - step.percent), (step.candidate, step.percent))
    drawn = bar("traffic", [Part(revision, percent, f"{percent} %") for revision, percent in shares])
    return page(f"Rollout of {step.model}", drawn, _step(step))


def _step(step: RolloutStep) -> Html:
    """Return the phase, the last judgement, and the requests of both versions, without the traffic."""
    place = f"step {step.number}" + (f" of {step.count}" if step.count else "")
    decision = status(step.decision, _DECISIONS.get(step.decision, WAITING)) if step.decision else Html("")
    return joined(
        joined(status(step.phase, _PHASES.get(step.phase, BAD)), f", {place}, {step.percent} % to {step.candidate}"),
        section("judge", decision, lines(step.reasons) if step.reasons else ""),
        _comparison(step),
    )


def _comparison(step: RolloutStep) -> Html:
    """Return a table of both versions in this step: requests, errors, latency, and a sparkline of its distribution."""
    counts = {who: from_json((step.status.get("counts") or {}).get(who)) for who in ("stable", "candidate")}
    used = [bucket for one in counts.values() for bucket in one.latency]
    buckets = range(min(used), max(used) + 1) if used else ()
    rows = []
    for index, (who, revision) in enumerate((("stable", step.stable), ("candidate", step.candidate))):
        one = counts[who]
        spread = [one.latency.get(bucket, 0) for bucket in buckets]
        drawn = sparkline(f"distribution of the latencies of {revision}", spread, colour(index)) if any(spread) else ""
        rows.append([
            revision, one.requests, share(one.errors / one.requests) if one.requests else "",
            milliseconds(step.numbers.get(f"{who}.latency")), drawn,
        ])  # fmt: skip
    if not any(one.requests for one in counts.values()):
        return Html("")
    return section("requests of this step", table(["version", "requests", "errors", "latency", "distribution"], rows))


def _explanation(explanation: Explanation) -> Html:
    model = explanation.model
    decisions = [
        [short_time(one.at), one.revision, f"{one.before} → {one.after}", "; ".join(one.reasons)]
        for one in explanation.decisions
    ]
    return page(
        f"Why {model.name} is as it is",
        joined(_ready(model)),
        section("traffic", joined(explanation.rule), _traffic_bar(model.traffic)),
        section("rollout", _step(model.rollout)) if model.rollout is not None else "",
        section("replicas", _replicas(model)),
        section("scaling decisions", table(["at", "revision", "replicas", "reasons"], decisions)) if decisions else "",
        section("starts of replicas", *_starts(explanation.starts)),
        section("problems", lines(explanation.problems)) if explanation.problems else "",
        section("notes", lines(explanation.notes)) if explanation.notes else "",
    )


def _starts(starts: Sequence[ReplicaStart]) -> list[Html]:
    """Return the timeline of each start; all have the same scale."""
    longest = max((start.milliseconds or 0 for start in starts), default=0)
    drawn = []
    for start in starts:
        took = f" in {start.milliseconds:g} ms" if start.milliseconds is not None else ""
        server = ", ".join(f"{name} {value:g} ms" for name, value in start.server.items())
        inside = f" in the server: {server}" if server else ""
        title = f"{start.kind} start of {start.revision}{took}"
        steps = [Part(step.name, step.milliseconds, f"{step.milliseconds:g} ms") for step in start.steps]
        width = (start.milliseconds or 0) / longest if longest else 1.0
        drawn.append(joined(title, " ", muted(short_time(start.at), inside), bar(title, steps, width=width)))
    return drawn


def _prediction(answer: Prediction) -> Html:
    heads = ["row", *(name for output in answer.outputs for name in _columns(output))][: MAX_COLUMNS + 1]
    cells = [_cells(output) for output in answer.outputs]
    count = max((len(rows) for rows in cells), default=0)
    rows = [
        [index, *(value for one in cells for value in (one[index] if index < len(one) else ()))][: MAX_COLUMNS + 1]
        for index in range(min(count, MAX_ROWS))
    ]
    rows = [row + [""] * (len(heads) - len(row)) for row in rows]
    left = f"{count - MAX_ROWS} more rows" if count > MAX_ROWS else ""
    timing = [Part(name, value, f"{value:g} ms") for name, value in answer.timing.items()]
    recent = sorted(answer.recent)
    longest = f"median {milliseconds(recent[len(recent) // 2])}, longest {milliseconds(recent[-1])}" if recent else ""
    by = f"{answer.revision}, " if answer.revision else ""
    shapes = ", ".join(f"{one.name} {one.datatype} {list(one.shape)}" for one in answer.outputs)
    return page(
        f"Prediction of {answer.model}",
        muted(f"{by}{answer.seconds * 1000:.1f} ms; {shapes}"),
        table(heads, rows, "no rows"),
        muted(left) if left else "",
        section(
            f"the last {len(recent)} calls",
            sparkline(f"durations of the last {len(recent)} calls", answer.recent),
            " ",
            muted(longest),
        )
        if len(recent) > 1
        else "",
        section("the request waited for a replica", bar("wait", timing)) if timing else "",
    )


def _chat(answer: Chat) -> Html:
    tokens = [
        f"{answer.usage[key]} tokens of the {what}"
        for what, key in (("prompt", "prompt_tokens"), ("answer", "completion_tokens"))
        if key in answer.usage
    ]
    cut = ["cut off at the limit of tokens"] if answer.finish_reason == "length" else []
    return page(
        f"Answer of {answer.model}",
        muted(", ".join([*filter(None, [answer.revision]), *tokens, *cut])),
        element("div", answer.text, style="white-space:pre-wrap;"),
    )


def _columns(output: PredictionOutput) -> list[str]:
    width = _width(output)
    return [output.name] if width == 1 else [f"{output.name}_{index}" for index in range(width)]


def _width(output: PredictionOutput) -> int:
    width = 1
    for size in output.shape[1:]:
        width *= size
    return width


def _cells(output: PredictionOutput) -> list[list[str]]:
    """Return the shown values, a list for each row."""
    rows = output.values if len(output.shape) else [output.values]
    return [[_value(one) for one in _flat(row)[:MAX_COLUMNS]] for row in rows[:MAX_ROWS]] + [[]] * (
        len(rows) - MAX_ROWS
    )


def _flat(value: Any) -> list[Any]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list):
        return [value]
    return [inner for one in value for inner in _flat(one)]


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _ready(model: Model) -> Html:
    if model.ready:
        return status("ready", GOOD)
    return joined(status("not ready", BAD), element("span", ": ", model.reason, style="white-space:normal;"))


def _replicas(model: Model) -> str:
    counts = model.replicas
    starting = f", {counts.starting} starting" if counts.starting else ""
    return f"{counts.ready} of {counts.desired} ready{starting}"


def _traffic_bar(split: TrafficSplit, *, legend: bool = True) -> Html:
    """Return the bar of a split, older versions first, so that each keeps its colour as the traffic moves."""
    targets = sorted(split, key=lambda target: target.revision)
    parts = [
        Part(target.revision, target.percent, _target_text(target.percent, target.version, target.tag))
        for target in targets
    ]
    return bar("traffic", parts, legend=legend, width=1.0 if legend else 0.3) if parts else Html("")


def _target_text(percent: int, version: str, tag: str) -> str:
    version = f", version {version}" if version else ""
    return f"{percent} %{version}" + (f", tag {tag}" if tag else "")


def _outcome(version: ModelVersion) -> Html:
    text = outcome_text(version.outcome)
    return status(text, _OUTCOMES.get(version.outcome, WAITING)) if text else Html("")


_PAGES: Final[dict[type, Callable[[Any], Html]]] = {
    Model: _model,
    ModelList: _models,
    ModelHistory: _history,
    ModelNoticeList: _notices,
    TrafficSplit: _split,
    RolloutStep: _rollout,
    Explanation: _explanation,
    Prediction: _prediction,
    Chat: _chat,
}
