"""`knodel diff`."""

from __future__ import annotations

import difflib

import yaml

from clusters.base.objects import MODEL, Object, name_of
from serving.cli.context import Session, verb
from serving.cli.files import models_of
from serving.cli.names import models_file
from serving.client.errors import FAILED
from serving.client.models.changes import store_model
from serving.client.models.local_files import keep_by_digest, keep_files, present_object, without_same_bytes


@verb("diff", prints=False, examples=[("Show what deploying a file would change", "knodel diff -f models.yaml")])
@models_file
def command(session: Session, source: str) -> int:
    """Show what deploying a file would change. The exit code is 1 if there are changes, like that of diff."""
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


def _text(model: Object) -> list[str]:
    """Return the fields that users write (spec, labels, annotations) as lines of YAML."""
    if not model:
        return []
    metadata = {key: value for key, value in model["metadata"].items() if key in ("name", "labels", "annotations")}
    text: str = yaml.safe_dump({"metadata": metadata, "spec": model.get("spec") or {}}, sort_keys=True)
    return text.splitlines()
