"""`knodel explain`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from autoscaler.metrics.signals import Signals
from autoscaler.usage.signals import read_signals
from clusters.base.objects import MODEL, POD_AUTOSCALER, Object, condition_of, name_of
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.texts import adapters_text, rollout_lines, schedule_lines
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.models.explaining import pool_notes, traffic_rule
from serving.client.replicas import isolation_notes, replica_problems
from serving.types.annotations import LABEL_MODEL
from serving.types.lifecycle import WORKERS_READY


@verb(
    "explain",
    examples=[
        ("Show why a model has its replicas and traffic", "knodel explain iris"),
        ("Repeat the last decisions with another target", "knodel explain iris --replay --with scaleTarget=8"),
    ],
)
@model_name()
@click.option("--replay", "again", is_flag=True, help="Repeat the last scaling decisions from their recorded inputs.")
@click.option("--with", "others", metavar="FIELD=VALUE", multiple=True, help="With --replay: use another policy value.")
def command(session: Session, name: str, again: bool, others: tuple[str, ...]) -> None:
    """Explain the number of replicas and the traffic of the model NAME."""
    if others and not again:
        raise UsageError("--with requires --replay: give both")
    client = session.client()
    model = client.get(MODEL, name, session.namespace)
    if again:
        _replay(session, client, name, others)
        return
    if session.output.structured:
        session.output.value(model)
        return
    _traffic(session.output, model)
    for line in rollout_lines(model):
        session.output.text(line)
    _replicas(session.output, model)
    _signals(session.output, client.list(POD_AUTOSCALER, session.namespace, f"{LABEL_MODEL}={name}")["items"])
    _starts(session.output, model)
    for line in client.call(pool_notes, model):
        session.output.text(f"  {line}")
    for problem in client.call(replica_problems, name, session.namespace):
        session.output.text(f"  {problem}")
    for note in client.call(isolation_notes, name, session.namespace):
        session.output.text(f"  {note}")


def _replay(session: Session, client: Client, name: str, others: tuple[str, ...]) -> None:
    from serving.cli.verbs.models.replays import (  # heavy: imports the decider and numpy
        lines_of,
        parse_changes,
        replays,
        value_of,
    )

    changes = parse_changes(others)
    found = client.list(POD_AUTOSCALER, session.namespace, f"{LABEL_MODEL}={name}")["items"]
    made = list(replays(found, changes))
    if session.output.structured:
        session.output.value([value_of(*one) for one in made])
        return
    if not made:
        session.output.text("no recorded decision to replay: the next decision will be recorded")
    for one in made:
        for line in lines_of(*one, changed=bool(changes)):
            session.output.text(line)


def _traffic(output: Output, model: Object) -> None:
    status = model.get("status") or {}
    shares = status.get("traffic") or ()
    output.text(f"Traffic: {traffic_rule(model) if shares else 'none, since no version has been ready yet'}")
    for entry in shares:
        version = f" (version {entry['version']})" if entry.get("version") else ""
        tag = f", tag {entry['tag']}" if entry.get("tag") else ""
        output.text(f"  {entry.get('percent', 0):>3} %  {entry.get('revision')}{version}{tag}")
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") != "True":
        reason = ": ".join(str(ready[part]).strip() for part in ("reason", "message") if ready.get(part))
        output.text(f"  not ready: {reason or 'no status yet'}")


def _replicas(output: Output, model: Object) -> None:
    status = model.get("status") or {}
    replicas = status.get("replicas") or {}
    counts = ", ".join(f"{replicas.get(name, 0)} {name}" for name in ("desired", "ready", "starting"))
    output.text(f"Replicas: {counts}")
    if adapters := adapters_text(model):
        output.text(f"  adapters: {adapters}")
    if (workers := condition_of(model, WORKERS_READY)) is not None:
        output.text(f"  {workers.get('message')}")
    for line in schedule_lines(model, datetime.now(UTC)):
        output.text(f"  {line}")
    decisions = status.get("decisions") or []
    if not decisions and status.get("traffic"):
        output.text("  no scaling decision is recorded")
    elif not decisions:
        output.text("  no scaling decision yet: the first replica is started to test the version")
    for decision in decisions:
        reasons = "; ".join(str(reason.get("message", "")) for reason in decision.get("reasons") or ())
        revision = decision.get("revision", "")
        output.text(f"  {decision.get('at')}  {revision}  {decision.get('from')} → {decision.get('to')}  {reasons}")


def _signals(output: Output, autoscalers: Iterable[Object]) -> None:
    """Print what the replicas do with their GPUs; no decision is made from that."""
    for one in autoscalers:
        found = read_signals(one, datetime.now(UTC)) or Signals()
        texts = {"GPU": found.gpu, "its memory": found.memory, "KV cache": found.kv_cache}
        known = ", ".join(f"{about} {share:.0%}" for about, share in texts.items() if share is not None)
        if known:
            output.text(f"  in use by {name_of(one)}: {known}")


def _starts(output: Output, model: Object) -> None:
    starts = (model.get("status") or {}).get("starts") or []
    if starts:
        output.text("Starts, milliseconds:")
    for start in starts:
        steps = ", ".join(f"{step.get('name')} {step.get('milliseconds')}" for step in start.get("steps") or ())
        measured = ", ".join(f"{name} {value}" for name, value in (start.get("server") or {}).items())
        warm = start.get("kind") == "warm"
        # a claimed member accepts requests before it has loaded the model; a cold replica loads before it is ready
        server = f"; {'then, before the first response' if warm else 'in the server'}: {measured}" if measured else ""
        took = start.get("milliseconds", "(duration unknown)")
        loaded = f" ({start['format']})" if start.get("format") else ""
        kind = "warm" if warm else "cold"
        output.text(f"  {start.get('at')}  {start.get('pod')}  {kind} {took}{loaded}: {steps}{server}")
