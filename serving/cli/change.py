"""Read, change, write: never over somebody else's change of the spec, however often the status moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.errors import AlreadyExists, Conflict, NotFound
from clusters.objects import MODEL, Object, generation_of, name_of, namespace_of, version_of
from serving.cli.admission import check_change, check_new
from serving.cli.client import Client

ATTEMPTS = 50  # status writes between a read and its write are rare; this many in a row means something else is wrong

AGAIN = "look at it and run the command again"
NAMED = ("spec", "metadata")  # the parts of a Model that a person writes

Patch = dict[str, Any]


def change_model(
    client: Client, name: str, namespace: str, patch_of: Callable[[Object], Patch], *, dry_run: bool = False
) -> Object:
    """Apply the merge patch that `patch_of` makes of the Model as it stands; returns the Model after it.

    Raises NotFound, Invalid, and Conflict when the spec changed between the first read and the write.
    """
    seen: int | None = None
    for _ in range(ATTEMPTS):
        model = client.get(MODEL, name, namespace)
        if seen not in (None, generation_of(model)):
            break
        seen = generation_of(model)
        patch = patch_of(model)
        if not client.checks_models:
            check_change(client, model, patch)
        metadata = {**patch.get("metadata", {}), "resourceVersion": version_of(model)}
        try:
            return client.merge(MODEL, name, namespace, {**patch, "metadata": metadata}, dry_run)
        except Conflict:
            continue  # most often only the status moved
    raise Conflict(f"model {name} was changed by somebody else meanwhile: {AGAIN}")


def store_model(client: Client, model: Object, *, dry_run: bool = False) -> Object:
    """Create the Model, or change the fields that `model` names; returns it as it is stored.

    Raises as `change_model`; NotFound only when there is no such namespace.
    """
    name, namespace = name_of(model), namespace_of(model)
    patch = {part: model[part] for part in NAMED if part in model}
    try:
        return change_model(client, name, namespace, lambda _: patch, dry_run=dry_run)
    except NotFound:
        spec = {field: value for field, value in (model.get("spec") or {}).items() if value is not None}
        return _create(client, {**model, "spec": spec}, dry_run)


def _create(client: Client, model: Object, dry_run: bool) -> Object:
    name, namespace = name_of(model), namespace_of(model)
    if not client.checks_models:
        check_new(client, model)
    try:
        return client.create(MODEL, model, namespace, dry_run=dry_run)
    except AlreadyExists as error:
        raise Conflict(f"model {name} was made by somebody else meanwhile: {AGAIN}") from error
    except NotFound as error:  # the Model is what is to be made: only its namespace can be missing
        raise NotFound(f"there is no namespace {namespace}: `knodel namespace {namespace}` makes it") from error
