"""`knodel diff`."""

from __future__ import annotations

import difflib

import click
import yaml

from clusters.base.objects import MODEL, Object, annotations_of, labels_of, name_of
from serving.cli.context import Session, environments, verb
from serving.cli.files import models_of
from serving.cli.names import models as complete_models
from serving.cli.names import models_file
from serving.client.client import Client
from serving.client.environments import Environment, environments_file, read_environments
from serving.client.errors import FAILED, DoesNotExist, UsageError
from serving.client.models.changes import store_model
from serving.client.models.local_files import (
    keep_by_digest,
    keep_files,
    present_object,
    recorded_digest,
    without_same_bytes,
)


@verb(
    "diff", prints=False, takes_env=False,
    examples=[
        ("Show what deploying a file would change", "knodel diff -f models.yaml"),
        ("Compare all models of two environments", "knodel diff --env dev --env prod"),
        ("Compare one model", "knodel diff --env dev --env prod iris"),
    ],
)  # fmt: skip
@click.argument("name", required=False, shell_complete=complete_models)
@models_file(required=False)
@click.option("--env", "envs", metavar="NAME", multiple=True, shell_complete=environments,
              help="Environment of the file; given twice: the two to compare.")  # fmt: skip
def command(session: Session, source: str | None, name: str | None, envs: tuple[str, ...]) -> int:
    """Show what deploying a file would change, or how two environments differ.

    The exit code is 1 if there are differences, like that of diff.
    """
    if source and not name and len(envs) < 2:
        return _compare_file(session, source)
    if source or len(envs) != 2:
        raise UsageError("give -f FILE, or two environments as in --env dev --env prod [NAME]")
    return _compare_environments(session, name, *envs)


def _compare_file(session: Session, source: str) -> int:
    changed = False
    models, client = models_of(source, session.namespace, namespace_given=session.namespace_given), session.client()
    for given in models:
        model = given if session.kube else keep_files(session.state, given, dry_run=True)
        before = client.call(present_object, MODEL, model) or {}
        if session.kube is None:
            keep_by_digest(session.state, model, before, dry_run=True)
        after = client.call(store_model, without_same_bytes(model, before), dry_run=True)
        name = name_of(model)
        lines = list(difflib.unified_diff(_text(before), _text(after), f"{name} (now)", f"{name} (new)", lineterm=""))
        changed = changed or bool(lines)
        session.output.lines(lines)
    return FAILED if changed else 0


def _compare_environments(session: Session, name: str | None, one: str, other: str) -> int:
    """Print the differences of the Models of two environments. Raises DoesNotExist for a NAME in neither."""
    found = read_environments(environments_file())
    sides = [_models(session, found.find(env), name) for env in (one, other)]
    names = sorted({*sides[0], *sides[1]})
    if name and not names:
        raise DoesNotExist(f"model {name} is in neither environment: `knodel list --env {one}` lists the models")
    changed = False
    for model in names:
        before, after = (_described(side.get(model)) for side in sides)
        lines = list(difflib.unified_diff(before, after, f"{model} ({one})", f"{model} ({other})", lineterm=""))
        changed = changed or bool(lines)
        session.output.lines(lines)
    return FAILED if changed else 0


def _models(session: Session, environment: Environment, name: str | None) -> dict[str, Object]:
    """Return name → Model of an environment."""
    options = click.get_current_context().ensure_object(dict)
    options.clear()
    options["--env"] = environment.name  # commands that messages advise from here on are about it
    ref, namespace = environment.open()
    namespace = session.namespace if session.namespace_given else namespace
    client = Client(ref.server(), driver=session.driver)
    fields = f"metadata.name={name}" if name else ""
    return {name_of(model): model for model in client.list(MODEL, namespace, fields=fields)["items"]}


def _described(model: Object | None) -> list[str]:
    """Return what may differ between environments, the digest of the newest version first."""
    if model is None:
        return []
    own = {key: value for key, value in annotations_of(model).items() if not key.startswith("knodel.dev/")}
    spec = model.get("spec") or {}
    digest = spec.get("digest") or recorded_digest(model)
    shown = {**model, "metadata": {"name": name_of(model), "labels": dict(labels_of(model)), "annotations": own}}
    rest = {field: value for field, value in spec.items() if field != "digest"}
    return [f"digest: {digest or 'not recorded yet'}", *_text({**shown, "spec": rest})]


def _text(model: Object) -> list[str]:
    """Return the fields that users write (spec, labels, annotations) as lines of YAML."""
    if not model:
        return []
    metadata = {key: value for key, value in model["metadata"].items() if key in ("name", "labels", "annotations")}
    text: str = yaml.safe_dump({"metadata": metadata, "spec": model.get("spec") or {}}, sort_keys=True)
    return text.splitlines()
