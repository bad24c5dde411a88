"""`knodel explain`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from clusters.base.errors import Forbidden
from clusters.base.objects import MODEL, POD_AUTOSCALER, WARM_POOL, Object, condition_of, name_of
from serving.cli.base.errors import UsageError
from serving.cli.base.output import Output
from serving.cli.client.client import Client
from serving.cli.client.replicas import troubles
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.pools import unused_pools
from serving.cli.verbs.models.schedules import schedule_lines
from serving.cli.verbs.rollouts.rollout import rollout_lines
from serving.reconciler.rollout.state import rollout_of
from serving.types.annotations import LABEL_MODEL


@verb(
    "explain",
    examples=[
        ("Show why a model has its replicas and traffic", "knodel explain iris"),
        ("Repeat the last decisions with another target", "knodel explain iris --replay --with scaleTarget=8"),
    ],
)
@model_name()
@click.option("--replay", "again", is_flag=True, help="Repeat the last decisions from their recorded inputs.")
@click.option("--with", "others", metavar="FIELD=VALUE", multiple=True, help="With --replay: use another policy value.")
def command(session: Session, name: str, again: bool, others: tuple[str, ...]) -> None:
    """Explain the number of replicas and the traffic of the model NAME."""
    if others and not again:
        raise UsageError("--with is of --replay: give both")
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
    _starts(session.output, model)
    for line in unused_pools(model, _pools(client, session.namespace)):
        session.output.text(f"  {line}")
    for trouble in troubles(client, name, session.namespace):
        session.output.text(f"  {trouble}")


def _replay(session: Session, client: Client, name: str, others: tuple[str, ...]) -> None:
    from serving.cli.verbs.models.replays import (  # the decider, and numpy with it
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
        session.output.text("no decision is kept that could be replayed: the next one will be")
    for one in made:
        for line in lines_of(*one, changed=bool(changes)):
            session.output.text(line)


def _traffic(output: Output, model: Object) -> None:
    status = model.get("status") or {}
    shares = status.get("traffic") or ()
    output.text(f"Traffic: {_rule(model) if shares else 'none: no version of it was ready yet'}")
    for entry in shares:
        version = f" (version {entry['version']})" if entry.get("version") else ""
        tag = f", tag {entry['tag']}" if entry.get("tag") else ""
        output.text(f"  {entry.get('percent', 0):>3} %  {entry.get('revision')}{version}{tag}")
    if not _is_ready(model):
        ready = condition_of(model, "Ready") or {}
        said = ": ".join(str(ready[part]).strip() for part in ("reason", "message") if ready.get(part))
        output.text(f"  not ready: {said or 'the platform has not looked at it yet'}")


def _is_ready(model: Object) -> bool:
    return (condition_of(model, "Ready") or {}).get("status") == "True"


def _rule(model: Object) -> str:
    spec, state = model["spec"], rollout_of(model)
    if spec.get("traffic"):
        return f"pinned by spec.traffic (`knodel promote {name_of(model)}` lifts the pin)"
    if spec.get("canaryTrafficPercent") is not None:
        return f"spec.canaryTrafficPercent gives the latest ready version {spec['canaryTrafficPercent']} %"
    if state is not None and state.runs:
        return f"the rollout below gives {state.candidate} {state.percent} %"
    if state is not None and state.refuses and state.candidate == model["status"].get("latestCreatedRevision"):
        return f"{state.candidate} was refused by its rollout, {state.stable} has it all"
    if spec.get("variants"):
        return "the latest ready version, shared by spec.variants"
    return "the latest ready version has it all"


def _replicas(output: Output, model: Object) -> None:
    status = model.get("status") or {}
    replicas = status.get("replicas") or {}
    counts = ", ".join(f"{replicas.get(name, 0)} {name}" for name in ("desired", "ready", "starting"))
    output.text(f"Replicas: {counts}")
    for line in schedule_lines(model, datetime.now(UTC)):
        output.text(f"  {line}")
    decisions = status.get("decisions") or []
    if not decisions:
        output.text(f"  {_undecided(status)}")
    for decision in decisions:
        reasons = "; ".join(str(reason.get("message", "")) for reason in decision.get("reasons") or ())
        revision = decision.get("revision", "")
        output.text(f"  {decision.get('at')}  {revision}  {decision.get('from')} → {decision.get('to')}  {reasons}")


def _starts(output: Output, model: Object) -> None:
    starts = (model.get("status") or {}).get("starts") or []
    if starts:
        output.text("Starts, milliseconds:")
    for start in starts:
        steps = ", ".join(f"{step.get('name')} {step.get('milliseconds')}" for step in start.get("steps") or ())
        measured = ", ".join(f"{name} {value}" for name, value in (start.get("server") or {}).items())
        warm = start.get("kind") == "warm"
        # a claimed member takes requests before it has loaded, and holds them; a cold replica loads before it is ready
        server = f"; {'then, before the first answer' if warm else 'the server itself'}: {measured}" if measured else ""
        took = start.get("milliseconds", "(not known how long)")
        loaded = f" ({start['format']})" if start.get("format") else ""
        kind = "warm" if warm else "cold"
        output.text(f"  {start.get('at')}  {start.get('pod')}  {kind} {took}{loaded}: {steps}{server}")


def _pools(client: Client, namespace: str) -> list[Object]:
    """Return the warm pools of the namespace, none for a caller who may not list them."""
    try:
        found: list[Object] = client.list(WARM_POOL, namespace)["items"]
    except Forbidden:
        return []
    return found


def _undecided(status: Object) -> str:
    """Without a decision on record."""
    if status.get("traffic"):
        return "no scaling decision is recorded"
    return "no scaling decision yet: the first replica is started to prove the version"
