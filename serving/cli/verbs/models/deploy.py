"""`knodel deploy`: create Models and WarmPools, or change only the given fields of existing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from clusters.base.errors import Invalid, KnodelError
from clusters.base.objects import REVISION, Key, Object, key_of, name_of, namespace_of
from serving.cli.addresses import address_lines, aligned
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.cli.files import models_of
from serving.cli.gpu_options import gpu_options, take_gpu_fields
from serving.cli.llm import llm_options, take_llm_fields
from serving.cli.mlflow import resolve_reference
from serving.cli.names import files, formats, models, secrets
from serving.cli.ray import RAY_APPLICATION, RAY_SERVICE, take_ray_fields
from serving.cli.settings import prices_in_force
from serving.cli.texts import pool_summary, rollout_summary
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.inference.example import example_request
from serving.client.inference.ingress import ingress_target
from serving.client.mlflow.references import is_reference
from serving.client.models.changes import KIND_NAMES, changed_fields, store_object
from serving.client.models.deploying import (
    KINDS_OF_FILES,
    NO_FILES,
    DeployFields,
    LocalFiles,
    await_ready,
    is_model,
    is_unchanged,
    kind_of,
    local_files,
    model_of,
    prepare,
)
from serving.client.models.local_files import name_for, present_object
from serving.reconciler.rollout.state import rollout_of
from serving.reconciler.rollout.versions import Version, shares_of, versions_of
from serving.storage.transfer.urls import is_file_uri
from serving.types.annotations import LABEL_MODEL
from serving.types.ray import has_service
from serving.types.references import collisions

EXAMPLE_TIMEOUT = 3.0  # s
MAX_EXAMPLE_LENGTH = 1000  # characters of the request in a printed curl command


@verb(
    "deploy",
    examples=[
        ("Deploy a file", "knodel deploy iris --uri ./iris.onnx"),
        ("Deploy a file under its own name, on a cluster with artifacts.prefix", "knodel deploy ./iris.onnx"),
        ("Deploy a new version with a rollout in steps", "knodel deploy iris --uri s3://models/iris/2 --rollout"),
        ("Send 10 % of the traffic to the new version", "knodel deploy iris --uri ./iris-2.onnx --canary 10"),
        ("Deploy a version of MLflow's model registry", "knodel deploy churn --uri models:/churn@champion"),
        (
            "Deploy a language model with a LoRA adapter",
            "knodel deploy chat --uri hf://org/model@v1 --context-length 8192 --adapter pirate=hf://org/pirate-lora@v1",
        ),
        ("Deploy a RayService", "knodel deploy ranker --ray-service http://ranker-serve-svc:8000/rank"),
        ("Deploy a model with a quarter of a GPU", "knodel deploy iris --uri ./iris --gpu-fraction 0.25"),
        ("Deploy the Models of a file", "knodel deploy -f models.yaml"),
    ],
)
@click.argument("name", metavar="NAME|PATH", required=False, shell_complete=models)
@click.option("-f", "--file", "source", metavar="FILE|-", shell_complete=files,
              help="File with Models and WarmPools, as YAML or JSON.")  # fmt: skip
@click.option("--uri", metavar="URI|PATH", shell_complete=files, help="Location of the model's files.")
@click.option("--digest", metavar="sha256:HEX", help="Expected digest of the files.")
@click.option("--format", "model_format", metavar="FORMAT", shell_complete=formats,
              help="Format of the files [detected from their names].")  # fmt: skip
@click.option("--secret", metavar="NAME", shell_complete=secrets, help="Secret with the credentials of the storage.")
@click.option("--version", metavar="TEXT", help="Version label shown in listings.")
@click.option("--canary", type=int, metavar="PERCENT", help="Share of the traffic for the new version.")
@click.option(
    "--rollout/--no-rollout", default=None, help="Roll out new versions in steps, with automatic rollback [unchanged]."
)
@click.option("--min", "least", type=int, help="Minimum number of replicas.")
@click.option("--max", "most", type=int, help="Maximum number of replicas.")
@gpu_options("of each replica")
@click.option("--priority", type=int, help="Who gets GPUs first where not all fit: a higher number before a lower one.")
@click.option("--weight", type=float, metavar="NUMBER", help="Share of GPUs relative to other models of the namespace.")
@llm_options("--embeddings/--no-embeddings")
@RAY_APPLICATION
@RAY_SERVICE
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the model is ready or has failed.")
@timeout_option("300s")
@click.option("--dry-run", is_flag=True, help="Validate and print the changes; make none.")
def command(
    session: Session, name: str | None, source: str | None, wait: bool, timeout: str, dry_run: bool, **named: Any
) -> None:
    """Deploy the model NAME, or a new version of it. Fields without an option keep their values.

    `knodel deploy PATH` deploys a file or folder under its own name, without suffix: give a path with a slash or a dot.

    Local files are copied: the version serves the copy, even if the files change later. For a cluster they are uploaded
    to the store of its setting artifacts.prefix.

    A URI models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN_ID/PATH is resolved by MLflow's tracking server, whose
    address is MLFLOW_TRACKING_URI. The Model names that version, so an alias that moves later changes nothing.
    """
    seconds = parse_timeout(timeout)
    named["llm"] = take_llm_fields(named)
    named["ray"] = take_ray_fields(named)
    named["resources"] = take_gpu_fields(named)
    if name and not source and not named["uri"] and _is_location(name):
        name, named["uri"] = name_for(name), name
    if named["uri"] and is_reference(named["uri"]):
        found = resolve_reference(named["uri"])
        session.output.warn(found.text)
        named |= {"uri": found.location, "version": named["version"] or found.version or None}
    objects = _from_file(session, name, source, named) if source else [_from_flags(session, name, named)]
    client = session.client(seconds)
    uploads = local_files(session.ref, named["uri"], named["llm"])
    deploy_objects(session, client, objects, seconds, wait=wait, uploads=uploads, dry_run=dry_run)


def deploy_objects(
    session: Session, client: Client, objects: list[Object], seconds: float, *, wait: bool,
    uploads: LocalFiles = NO_FILES, dry_run: bool = False,
) -> None:  # fmt: skip
    """Store the objects, wait for them if `wait`, and print them. `uploads`: as for `prepare`. Raises ClientError."""
    prepared = client.call(prepare, session.ref, objects, uploads=uploads, dry_run=dry_run)
    objects = [one.wanted for one in prepared]
    if dry_run or len(objects) > 1:
        checked = _check(client, objects)
        if dry_run:
            _print_plan(session, client, checked)
            return
    stored = [client.call(store_object, kind_of(obj), obj) for obj in sorted(objects, key=is_model)]  # pools come first
    models = {key_of(one.given): one for one in prepared if one.is_model}
    same = {
        key_of(obj): _unchanged(models[key_of(obj)].given, obj)
        for obj in stored
        if is_model(obj) and is_unchanged(models[key_of(obj)].before, obj)
    }
    for obj in filter(is_model, stored):
        _warn_of_pin(session, obj)
    if wait:
        stored = [
            client.call(await_ready, obj, seconds, key_of(obj) in same) if is_model(obj) else obj for obj in stored
        ]
    _print(session, stored, waited=wait, same=same)


def _is_location(text: str) -> bool:
    """Return whether a text is a path or URI; a name has neither slashes nor dots."""
    return any(sign in text for sign in "/.~\\")


def _warn_of_pin(session: Session, model: Object) -> None:
    """Warn on stderr that a pin keeps all traffic from the newest version."""
    pinned = model["spec"].get("traffic")
    if pinned and not any(entry.get("latest") and entry.get("percent") for entry in pinned):
        name = name_of(model)
        remedy = f"`knodel promote {name}` sends it all the traffic"
        session.output.warn(f"the traffic of model {name} is pinned, so the newest version gets 0 %: {remedy}")


def _check(client: Client, objects: list[Object]) -> list[Object]:
    """Return the objects after a dry run of all, so that either all are stored or none. Raises Invalid."""
    checked = [client.call(store_object, kind_of(obj), obj, dry_run=True) for obj in objects]
    keys = [(kind_of(obj), key_of(obj)) for obj in checked]
    models: list[Object] = []
    for obj, key in zip(checked, keys, strict=True):
        if keys.count(key) > 1:
            raise UsageError(f"{KIND_NAMES[kind_of(obj)]} {name_of(obj)} is in the file twice: merge its documents")
        if not is_model(obj):
            continue
        faults = collisions(obj, models)  # with other new Models, which the platform does not know yet
        if faults:
            raise Invalid(f"Model {name_of(obj)}", faults)
        models.append(obj)
    return checked


def _from_file(session: Session, name: str | None, source: str, named: dict[str, Any]) -> list[Object]:
    given = [option for option, value in named.items() if value is not None]
    if name or given:
        raise UsageError("-f FILE has all fields of its models: omit NAME and the other options")
    return models_of(source, session.namespace, namespace_given=session.namespace_given, kinds=KINDS_OF_FILES)


def _from_flags(session: Session, name: str | None, named: dict[str, Any]) -> Object:
    if not name:
        raise UsageError("no model is given: give NAME with --uri, or -f FILE")
    fields = DeployFields(**named)
    if fields == DeployFields():
        hint = f"; write ./{name} to deploy the files with that path" if Path(name).exists() else ""
        raise UsageError(f"no change to model {name} is given: give --uri, or an option for another field{hint}")
    return model_of(name, session.namespace, fields)


def _print(
    session: Session, objects: list[Object], waited: bool = False, same: Mapping[Key, str] = MappingProxyType({})
) -> None:
    if session.output.structured:
        many = {"apiVersion": "v1", "kind": "List", "items": objects}
        session.output.value(objects[0] if len(objects) == 1 else many)
        return
    for obj in objects:
        if not is_model(obj):
            session.output.text(pool_summary(obj))
            continue
        session.output.text(_summary(session, obj))
        if key_of(obj) in same:
            session.output.text(same[key_of(obj)])
        for line in aligned(address_lines(session, obj, _example(session, obj) if waited else "")):
            session.output.text(f"  {line}")


def _unchanged(given: Object, model: Object) -> str:
    """Return a line that explains why the deploy of `given` created no version of the Model."""
    uri = model["spec"].get("storageUri") or ""
    if model["spec"].get("digest") or (given.get("spec") or {}).get("digest") or is_file_uri(uri):
        line = "unchanged: the newest version has these files and settings, so no new version was created"
        name, state, newest = (
            name_of(model),
            rollout_of(model),
            (model.get("status") or {}).get("latestCreatedRevision"),
        )
        if state is None or not state.refuses or model["spec"].get("traffic") or state.candidate != newest:
            return line
        remedies = (
            f"`knodel promote {name}` sends it the traffic, `knodel deploy {name} --version LABEL` creates a new one"
        )
        return f"{line}; its rollout was rolled back: {remedies}"
    if has_service(model["spec"]):
        return "unchanged: the newest version has this service and these settings; give --version to create a new one"
    remedy = "give --version or --digest to create a new version"
    return f"unchanged: the newest version has this URI and these settings; {uri} was not fetched again: {remedy}"


def _print_plan(session: Session, client: Client, checked: list[Object]) -> None:
    """Print what deploying would change, and the cost of the Models; with -o json or yaml only the objects."""
    if session.output.structured:
        _print(session, checked)
        return
    for obj in checked:
        before = client.call(present_object, kind_of(obj), obj)
        fields = changed_fields(before or {}, obj)
        plan = "would not be changed" if before and not fields else "would be changed" if before else "would be created"
        session.output.text(f"{KIND_NAMES[kind_of(obj)]} {name_of(obj)} is valid and {plan}; nothing was changed")
        for line in fields if before else ():
            session.output.text(f"  {line}")
    _forecast(session, client, checked)


def _forecast(session: Session, client: Client, objects: list[Object]) -> None:
    """Print the expected cost of the Models, or how to set prices; nothing if prices cannot be read."""
    if not any(map(is_model, objects)):
        return
    try:
        prices = prices_in_force(session, client)
    except KnodelError:  # the Models are validated; a forecast is optional
        return
    from serving.cost.forecast import make_forecast
    from serving.cost.texts import NO_FORECAST, forecast_lines
    from serving.types.validation import read_model  # heavy; only a forecast needs these

    if not prices.are_set:
        session.output.text(NO_FORECAST)
        return

    for model in filter(is_model, objects):
        for line in forecast_lines(name_of(model), make_forecast(read_model(model).spec, prices)):
            session.output.text(line)


def _summary(session: Session, model: Object) -> str:
    status = model.get("status") or {}
    newest = status.get("latestCreatedRevision", "")
    shares = shares_of(status.get("traffic") or (), _versions(session, model))
    words = [f"model {name_of(model)}"]
    if newest:
        words.append(f"version {newest} has {shares.get(newest, 0)} % of the traffic")
        words.append(rollout_summary(model))
    return ", ".join(filter(None, words))


def _versions(session: Session, model: Object) -> Sequence[Version]:
    """Return the versions of a Model with variants, where a version has several revisions; else nothing."""
    if not model["spec"].get("variants"):
        return ()
    client = session.client()
    revisions = client.list(REVISION, namespace_of(model), f"{LABEL_MODEL}={name_of(model)}")["items"]
    return versions_of(revisions)


def _example(session: Session, model: Object) -> str:
    """Return an example request of a model with a ready replica; empty if the request would start one."""
    status = model.get("status") or {}
    newest = {entry["revision"] for entry in status.get("traffic") or () if entry.get("percent")}
    if newest != {status.get("latestReadyRevision")} or not (status.get("replicas") or {}).get("ready"):
        return ""
    try:
        entrance = session.driver.run(ingress_target(session.ref, name_of(model), namespace_of(model)))
        found = session.driver.run(example_request(entrance, name_of(model), EXAMPLE_TIMEOUT))
    except KnodelError:  # the model is deployed; an example is optional
        return ""
    return found if len(found) <= MAX_EXAMPLE_LENGTH else ""
