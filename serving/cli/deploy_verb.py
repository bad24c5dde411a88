"""`knodel deploy`: create a Model, or change the fields that are named and leave all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clusters.errors import Invalid
from clusters.objects import MODEL, Object, generation_of, key_of, name_of, namespace_of
from serving.apis.references import collisions
from serving.cli.change import store_model
from serving.cli.client import Client
from serving.cli.context import Session, verb
from serving.cli.errors import UsageError
from serving.cli.files import models_of
from serving.cli.names import model_name
from serving.cli.wait import parse_timeout, wait_until_ready


@verb("deploy")
@model_name(required=False)
@click.option("-f", "--file", "source", metavar="FILE|-", help="Models to deploy, as YAML or JSON.")
@click.option("--uri", metavar="URI|PATH", help="Where the model's files are.")
@click.option("--digest", metavar="sha256:HEX", help="What the files must hash to.")
@click.option("--version", metavar="TEXT", help="What people call this version.")
@click.option("--canary", type=int, metavar="PERCENT", help="Share of the new version; the stable one keeps the rest.")
@click.option("--min", "least", type=int, help="Replicas at least.")
@click.option("--max", "most", type=int, help="Replicas at most.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return once it is ready, or has failed.")
@click.option("--timeout", default="300s", show_default=True, help="How long to wait at most.")
@click.option("--dry-run", is_flag=True, help="Validate and show, change nothing.")
def command(
    session: Session, name: str | None, source: str | None, wait: bool, timeout: str, dry_run: bool, **named: Any
) -> None:
    """Serve the model NAME, or a new version of it. Only what is named changes; all else stays."""
    seconds = parse_timeout(timeout)
    models = _from_file(session, name, source, named) if source else [_from_flags(session, name, named)]
    client = session.client(seconds)
    if dry_run or len(models) > 1:
        checked = _check(client, models)
        if dry_run:
            _print(session, checked, "is valid, nothing was changed")
            return
    stored = [store_model(client, model) for model in models]
    if wait:
        stored = [wait_until_ready(client, name_of(m), namespace_of(m), seconds, generation_of(m)) for m in stored]
    _print(session, stored)


def _check(client: Client, models: list[Object]) -> list[Object]:
    """What the Models would be: every one is refused or none is changed. Raises Invalid."""
    checked = [store_model(client, model, dry_run=True) for model in models]
    keys = [key_of(model) for model in checked]
    for index, model in enumerate(checked):
        if keys.count(key_of(model)) > 1:
            raise UsageError(f"model {name_of(model)} stands twice: write all of it in one document")
        faults = collisions(model, checked[:index])  # none of them is there yet, so the platform cannot see it
        if faults:
            raise Invalid(f"Model {name_of(model)}", faults)
    return checked


def _from_file(session: Session, name: str | None, source: str, named: dict[str, Any]) -> list[Object]:
    given = [option for option, value in named.items() if value is not None]
    if name or given:
        raise UsageError("-f FILE says everything about its models: leave NAME and the other options out")
    return models_of(source, session.namespace, bound=session.bound)


def _from_flags(session: Session, name: str | None, named: dict[str, Any]) -> Object:
    if not name:
        raise UsageError("which model? give NAME with --uri, or -f FILE")
    fields = {
        "storageUri": _uri(named["uri"], session) if named["uri"] else None,
        "digest": named["digest"],
        "version": named["version"],
        "minReplicas": named["least"],
        "maxReplicas": named["most"],
    }
    spec: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
    if named["canary"] is not None:
        spec |= {"canaryTrafficPercent": named["canary"], "traffic": None}  # a canary replaces a pin
    if not spec:
        raise UsageError(f"what about {name}? give --uri, or another field to change")
    metadata = {"name": name, "namespace": session.namespace}
    return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec}


def _uri(text: str, session: Session) -> str:
    if "://" in text:
        return text
    if session.kube:
        raise UsageError(f"--uri {text}: no Pod of a cluster can read a path of this machine: give an https:// URI")
    return Path(text).expanduser().absolute().as_uri()


def _print(session: Session, models: list[Object], verdict: str = "") -> None:
    if session.output.structured:
        many = {"apiVersion": "v1", "kind": "List", "items": models}
        session.output.value(models[0] if len(models) == 1 else many)
        return
    for model in models:
        session.output.text(f"model {name_of(model)} {verdict}" if verdict else _summary(model))


def _summary(model: Object) -> str:
    status = model.get("status") or {}
    newest = status.get("latestCreatedRevision", "")
    shares = {entry["revision"]: entry.get("percent") or 0 for entry in status.get("traffic") or ()}
    words = [f"model {name_of(model)}"]
    if newest:
        words.append(f"version {newest} has {shares.get(newest, 0)} % of the traffic")
    if model["spec"].get("traffic") and newest and not shares.get(newest):
        words.append(f"the traffic is pinned: `knodel promote {name_of(model)}` moves it")
    return ", ".join([*words, str(status.get("url", ""))]).rstrip(", ")
