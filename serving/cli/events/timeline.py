"""What followed from an event, in the order of time: its revision, the steps with their verdicts, the outcome. Pure.

Its parts are the ModelEvent that came, those that went out because of it, and the Model: its history and its rollout.
Events expire; what only the Model still knows stands in for those that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from clusters.base.objects import Object, parse_timestamp
from serving.cli.events.lookup import model_of, spec_of, status_of
from serving.reconciler.rollout.state import Judgement, Passed, join_reasons, moment, rollout_of
from serving.types.model import HistoryEntry, history_of

BEFORE: Final = frozenset({"sent", "received"})
"""What came before the event was dealt with."""
ORDER: Final = ("sent", "received", "applied", "revision", "started", "verdict", "step")
"""Of what happened at the same time, before all else."""
BAD: Final = frozenset({"rolledback", "failed"})
"""Ends whose reasons are all of interest; a step tells its own."""
NUMBERS: Final = 8
"""Of a verdict that a line shows; the object has all."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One line: when (RFC 3339), what in one word, and all that is to be said of it."""

    at: str
    what: str
    detail: str


def cause_of(event: Object) -> Mapping[str, Any]:
    """What caused the version that an event of ours tells of; empty for other events."""
    cause = _data_of(event).get("cause")
    return cause if isinstance(cause, Mapping) else {}


def timeline(event: Object, model: Object | None, outgoing: Sequence[Object]) -> list[Moment]:
    """Everything that is known to have followed from `event`; `outgoing` are the events that it caused."""
    line, told = _line_of(event, model), {str(spec_of(one).get("type")) for one in outgoing}
    moments = [*_arrival(event), *_steps(model, line, outgoing), *(_of_outgoing(one) for one in outgoing)]
    if line is not None:
        moments += _of_line(line, told)
    arrived = parse_timestamp(status_of(event).get("at") or spec_of(event)["receivedAt"])
    known = [(_time_of(one, arrived), one) for one in moments]
    return [replace(one, at=moment(at)) for at, one in sorted(known, key=lambda pair: (pair[0], _rank(pair[1])))]


def _time_of(one: Moment, arrived: datetime) -> datetime:
    """Kubernetes' times have whole seconds: what the event caused came after it all the same."""
    at = parse_timestamp(one.at)
    return at if one.what in BEFORE else max(at, arrived)


def _rank(one: Moment) -> int:
    return ORDER.index(one.what) if one.what in ORDER else len(ORDER)


def _arrival(event: Object) -> Iterator[Moment]:
    spec, status = spec_of(event), status_of(event)
    if spec.get("time"):
        yield Moment(spec["time"], "sent", f"{spec.get('type')} by {spec.get('source')}, id {spec.get('id')}")
    change = spec.get("change") or {}
    about = f" for {model_of(event)}" if model_of(event) else ""
    uri = f": {change['storageUri']}" if change.get("storageUri") else ""
    yield Moment(spec["receivedAt"], "received", f"by EventSource {spec.get('eventSource')}{about}{uri}")
    if status.get("at"):
        yield Moment(status["at"], status["phase"].lower(), status.get("message", ""))
    elif status.get("retryAt"):
        tries = f"after {status.get('attempts')} tries: {status.get('message', '')}"
        yield Moment(status["retryAt"], "next try", tries)


def _line_of(event: Object, model: Object | None) -> HistoryEntry | None:
    """The history's line of the version that the event brought."""
    spec = spec_of(event)
    wanted = (spec.get("id"), spec.get("source"))
    lines = history_of(model) if model is not None else ()
    return next((one for one in lines if one.cause.by == "event" and (one.cause.id, one.cause.source) == wanted), None)


def _of_line(line: HistoryEntry, told: set[str]) -> Iterator[Moment]:
    version = f", version {line.version}" if line.version else ""
    yield Moment(line.at, "revision", f"{line.revision}{version} was made")
    if line.promoted_at and not any(one.endswith(".promoted.v1") for one in told):
        yield Moment(line.promoted_at, "promoted", f"{line.revision} has all the traffic")


def _of_outgoing(event: Object) -> Moment:
    spec, status, data = spec_of(event), status_of(event), _data_of(event)
    verb = str(spec.get("type", "")).split(".")[-2:][0]
    share = f"{data['percent']} %: " if "percent" in data else ""
    reasons = list(data.get("reasons") or ())
    said = join_reasons(reasons if verb in BAD else reasons[:1]) or str(data.get("revision", ""))
    late = {"Accepted": "not told yet", "Failed": "told nobody"}.get(status["phase"], "")
    why = f" ({': '.join(filter(None, (late, status.get('message', ''))))})" if late else ""
    return Moment(str(spec.get("time") or spec["receivedAt"]), verb, f"{share}{said}{why}")


def _steps(model: Object | None, line: HistoryEntry | None, outgoing: Sequence[Object]) -> Iterator[Moment]:
    """The steps with their verdicts, and the last verdict, from the Model while it knows; else from the last event."""
    state = rollout_of(model) if model is not None and line is not None else None
    if state is None or line is None or state.candidate != line.revision:
        known = next((found for one in reversed(outgoing) if (found := _data_of(one).get("passed"))), ())
        yield from (_of_step(Passed.from_json(one)) for one in known)
        return
    yield from map(_of_step, state.passed)
    if state.judgement is not None and state.judgement not in [passed.judgement for passed in state.passed]:
        yield Moment(state.judgement.at, "verdict", _of_judgement(state.judgement))


def _of_step(passed: Passed) -> Moment:
    said = _of_judgement(passed.judgement) if passed.judgement is not None else "passed"
    return Moment(passed.until, "step", f"{passed.percent} % since {passed.since}: {said}")


def _of_judgement(judgement: Judgement) -> str:
    verdict = judgement.verdict
    numbers = ", ".join(f"{name} {value:g}" for name, value in list(verdict.numbers.items())[:NUMBERS])
    return f"{verdict.decision}: {join_reasons(verdict.reasons)}" + (f" [{numbers}]" if numbers else "")


def _data_of(event: Object) -> Mapping[str, Any]:
    """What an event of ours tells; its `spec.data` is the whole event."""
    whole = spec_of(event).get("data")
    data = whole.get("data") if isinstance(whole, Mapping) else None
    return data if isinstance(data, Mapping) else {}
