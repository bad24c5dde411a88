"""The live view of `knodel top --watch`: the load of each model, redrawn in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from clusters.base.objects import Key, Object, key_of, parse_timestamp
from serving.cli.base.keys import keyboard
from serving.cli.base.output import Output
from serving.cli.context import Session
from serving.client.models.load import Load, Reading, loads, readings
from serving.client.models.rollout_view import duration

QUIT: Final = "q"
UNKNOWN: Final = "-"
HEADS: Final = ("model", "replicas", "req/s", "p50", "p99", "errors", "busy", "queue", "tokens/s", "decision")
OPTIONAL: Final = ("decision", "tokens/s", "busy", "p50")
"""Columns that a narrow terminal drops, in this order."""
_FEW: Final = 10.0  # below it, a number has a decimal
_MS: Final = 1000


def watch_load(session: Session, namespace: str | None, interval: float, sort: str) -> None:
    """Show the load of the models of a namespace (None: of all) every `interval` seconds, until q or Ctrl-C.

    `sort` is the field of `Load` whose largest value comes first; "" sorts by name.
    """
    client, output = session.client(), session.output
    before: Reading | None = None
    with keyboard(output.live) as keys:
        found = readings(client.core, namespace, is_cluster=session.ref.kube is not None)
        for after in client.driver.iterate(found):
            _show(output, before, after, sort, wide=namespace is None)
            before = after
            if keys.wait(interval, QUIT):
                return


def rows_of(models: Sequence[Object], found: Mapping[Key, Load], sort: str, now: datetime) -> list[list[str]]:
    """Return the rows of the table, each with the namespace first. Pure."""

    def rank(model: Object) -> tuple[float, Key]:
        key = key_of(model)
        return (-(getattr(found[key], sort) or 0.0) if sort else 0.0, key)

    return [_row(model, found[key_of(model)], now) for model in sorted(models, key=rank)]


def decision_of(model: Object, now: datetime) -> str:
    """Return the newest scaling decision of a Model in a few words, empty without one. Pure."""
    decisions = (model.get("status") or {}).get("decisions") or ()
    if not decisions:
        return ""
    last = decisions[-1]
    reasons = last.get("reasons") or ()
    rule = f" {reasons[-1].get('rule', '')}" if reasons else ""
    try:
        seconds = (now - parse_timestamp(str(last.get("at", "")))).total_seconds()
    except ValueError:
        return f"{last.get('from')} → {last.get('to')}{rule}"
    return f"{last.get('from')} → {last.get('to')}{rule}, {duration(max(0.0, seconds))} ago"


def _row(model: Object, load: Load, now: datetime) -> list[str]:
    counts = (model.get("status") or {}).get("replicas") or {}
    key = key_of(model)
    return [
        key.namespace,
        key.name,
        f"{counts.get('ready', 0)}/{counts.get('desired', 0)}",
        _number(load.rate),
        _milliseconds(load.p50),
        _milliseconds(load.p99),
        UNKNOWN if load.errors is None else f"{load.errors:.2%}",
        f"{load.busy:g}",
        f"{load.queued:g}",
        UNKNOWN if load.tokens is None else _number(load.tokens),
        decision_of(model, now),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if 0 < value < _FEW else f"{value:.0f}"


def _milliseconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{_number(seconds * _MS)} ms"


def _show(output: Output, before: Reading | None, after: Reading, sort: str, *, wide: bool) -> None:
    now, found = datetime.now(UTC), loads(before, after)
    if output.structured:
        output.record({"at": now.isoformat(timespec="milliseconds"), "models": _values(after.models, found)})
        return
    has_tokens = any(load.tokens is not None for load in found.values())
    shown = [index for index, head in enumerate(HEADS) if head != "tokens/s" or has_tokens]
    rows = [
        [*(row[:1] if wide else []), *(row[index + 1] for index in shown)]
        for row in rows_of(after.models, found, sort, now)
    ]
    heads = [*(["namespace"] if wide else []), *(HEADS[index] for index in shown)]
    text = output.line_text(_title(after, found, now)) + output.table_text(heads, rows, optional=OPTIONAL)
    if after.refused:
        text += output.line_text(f"replicas cannot be read, so their numbers are missing: {after.refused}")
    elif after.unread:
        names = ", ".join(key.name for key in sorted(after.unread))
        text += output.line_text(f"some replicas of {names} do not answer on their management port")
    if output.live:
        output.redraw(text)
    else:
        output.print(text + "\n")


def _title(reading: Reading, found: Mapping[Key, Load], now: datetime) -> str:
    total = sum(load.rate or 0.0 for load in found.values())
    counts = f"{len(reading.models)} models, {len(reading.replicas)} replicas, {_number(total)} requests/s"
    return f"{now:%H:%M:%S} UTC  {counts}"


def _values(models: Sequence[Object], found: Mapping[Key, Load]) -> list[dict[str, Any]]:
    return [
        {
            "namespace": key.namespace,
            "model": key.name,
            "replicas": (model.get("status") or {}).get("replicas") or {},
            "requestsPerSecond": load.rate,
            "p50Seconds": load.p50,
            "p99Seconds": load.p99,
            "errorShare": load.errors,
            "busy": load.busy,
            "queued": load.queued,
            "tokensPerSecond": load.tokens,
            "decisions": ((model.get("status") or {}).get("decisions") or [])[-1:],
        }
        for model in models
        for key in [key_of(model)]
        for load in [found[key]]
    ]
