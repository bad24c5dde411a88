"""`knodel explain`."""

from __future__ import annotations

from clusters.objects import MODEL, Object, condition_of
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.output import Output


@verb("explain")
@model_name()
def command(session: Session, name: str) -> None:
    """Why the model NAME has the replicas and the traffic that it has."""
    model = session.client().get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model)
        return
    _traffic(session.output, model)
    _replicas(session.output, model)


def _traffic(output: Output, model: Object) -> None:
    spec, status = model["spec"], model.get("status") or {}
    output.text(f"Traffic: {_rule(spec)}")
    for entry in status.get("traffic") or ():
        version = f" (version {entry['version']})" if entry.get("version") else ""
        tag = f", tag {entry['tag']}" if entry.get("tag") else ""
        output.text(f"  {entry.get('percent', 0):>3} %  {entry.get('revision')}{version}{tag}")
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") != "True":
        output.text(f"  not ready: {ready.get('reason', '')}: {ready.get('message', '')}")


def _rule(spec: Object) -> str:
    if spec.get("traffic"):
        return "pinned by spec.traffic (`knodel promote` lifts the pin)"
    if spec.get("canaryTrafficPercent") is not None:
        return f"spec.canaryTrafficPercent gives the latest ready version {spec['canaryTrafficPercent']} %"
    if spec.get("variants"):
        return "the latest ready version, shared by spec.variants"
    return "the latest ready version has it all"


def _replicas(output: Output, model: Object) -> None:
    status = model.get("status") or {}
    replicas = status.get("replicas") or {}
    counts = ", ".join(f"{replicas.get(name, 0)} {name}" for name in ("desired", "ready", "starting"))
    output.text(f"Replicas: {counts}")
    decisions = status.get("decisions") or []
    if not decisions:
        output.text("  no scaling decision yet: the first replica is started to prove the version")
    for decision in decisions:
        reasons = "; ".join(str(reason.get("message", "")) for reason in decision.get("reasons") or ())
        revision = decision.get("revision", "")
        output.text(f"  {decision.get('at')}  {revision}  {decision.get('from')} → {decision.get('to')}  {reasons}")
