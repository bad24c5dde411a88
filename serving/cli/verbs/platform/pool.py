"""`knodel pool`: WarmPools by name. What `set` does not name stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.defaults import AUTO
from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, WARM_POOL, Object, name_of, namespace_of
from serving.cli.base.errors import NoSuchThing, UsageError
from serving.cli.change import change_object, store_object
from serving.cli.client.client import Client
from serving.cli.context import Session, every_namespace, verb
from serving.cli.names import formats, models, pool_name
from serving.cli.pools import pool_summary
from serving.control_api.table import age_of, columns_of
from serving.types.warm_pool import LONGEST_SIZE, OF_A_MODEL


@click.group("pool")
def command() -> None:
    """Manage warm pools: servers that run without a model, for fast starts."""


@verb("list")
@every_namespace
def list_pools(session: Session, all_namespaces: bool) -> None:
    """List warm pools."""
    found = session.client().list(WARM_POOL, None if all_namespaces else session.namespace)
    if session.output.structured:
        session.output.value(found)
        return
    columns, now = columns_of(WARM_POOL), datetime.now(UTC)
    rows = [
        [*([namespace_of(item)] if all_namespaces else []), name_of(item)]
        + [column.cell(item) for column in columns]
        + [age_of(item, now)]
        for item in found["items"]
    ]
    heads = [*(["namespace"] if all_namespaces else []), "name", *(column.name for column in columns), "age"]
    session.output.table(heads, rows)


@verb(
    "set",
    examples=[
        ("Keep two servers ready for models like iris", "knodel pool set fast --size 2 --like iris"),
        ("Choose the number by the arrivals, at most 5", "knodel pool set fast --size auto --max 5"),
    ],
)
@pool_name()
@click.option("--size", metavar="N|auto", help="Number of members to keep ready; auto: by the arrivals.")
@click.option("--min", "least", type=int, help="Minimum number of members, with --size auto.")
@click.option("--max", "most", type=int, help="Maximum number of members, with --size auto.")
@click.option("--max-age", metavar="DURATION", help="Age at which members are replaced.")
@click.option("--budget-cpu", metavar="QUANTITY", help="Limit of the cores that all members together request.")
@click.option("--budget-memory", metavar="QUANTITY", help="Limit of the memory that all members together request.")
@click.option("--like", metavar="MODEL", shell_complete=models, help="Make members that this model can claim.")
@click.option("--cpu", metavar="QUANTITY", help="Cores of each member.")
@click.option("--memory", metavar="QUANTITY", help="Memory of each member.")
@click.option("--timeout", metavar="DURATION", help="Request timeout of the models that claim members.")
@click.option("--concurrency", type=int, help="containerConcurrency of the models that claim members.")
@click.option(
    "--format",
    "model_format",
    metavar="FORMAT",
    shell_complete=formats,
    help=f"Format of the models that claim members [{DEFAULT_FORMAT}].",
)
def set_pool(session: Session, name: str, size: str | None, like: str | None, **named: Any) -> None:
    """Create the warm pool POOL, or change the fields that options name."""
    client = session.client()
    if size not in (None, AUTO) and not (named["least"] is None and named["most"] is None):
        raise UsageError(f"--size {size} with --min or --max: they bound the size {AUTO}, leave them or the number out")
    spec = _spec(size, named)
    if like is not None:
        spec["template"] = _merged(_class_of(client, like, session.namespace, named), spec.get("template") or {})
    if not spec:
        raise UsageError(f"what about {name}? give --size N, or another field to change")
    metadata = {"name": name, "namespace": session.namespace}
    wanted = {"apiVersion": WARM_POOL.api_version, "kind": WARM_POOL.kind, "metadata": metadata, "spec": spec}
    _print(session, store_object(client, WARM_POOL, wanted))


@verb("off")
@pool_name()
def turn_off(session: Session, name: str) -> None:
    """Set the size of the warm pool POOL to 0."""
    _print(
        session, change_object(session.client(), WARM_POOL, name, session.namespace, lambda _: {"spec": {"size": 0}})
    )


@verb("delete", prints=False)
@pool_name()
def delete_pool(session: Session, name: str) -> None:
    """Delete the warm pool POOL with its members."""
    session.client().delete(WARM_POOL, name, session.namespace)
    session.output.text(f"warm pool {name} deleted")


for _one in (list_pools, set_pool, turn_off, delete_pool):
    command.add_command(_one)


def _spec(size: str | None, named: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that options name, as the object has them."""
    resources = {"cpu": named["cpu"], "memory": named["memory"]}
    template = {
        "modelFormat": named["model_format"],
        "resources": _given(resources),
        "containerConcurrency": named["concurrency"],
        "timeout": named["timeout"],
    }
    return _given(
        {
            "size": _size(size) if size is not None else None,
            "min": named["least"],
            "max": named["most"],
            "maxAge": named["max_age"],
            "budget": _given({"cpu": named["budget_cpu"], "memory": named["budget_memory"]}),
            "template": _given(template),
        }
    )


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _size(text: str) -> int | str:
    if text == AUTO:
        return AUTO
    if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_SIZE):
        raise UsageError(f"--size {text!r}: give a number of members, or {AUTO}")
    return int(text)


def _class_of(client: Client, name: str, namespace: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """The template of members that the Model can take; what it does not say is null, so that a default holds again."""
    try:
        model = client.get(MODEL, name, namespace)
    except NotFound as error:
        raise NoSuchThing(f"--like {name}: there is no such model in namespace {namespace}") from error
    spec: Object = model.get("spec") or {}
    if spec.get("variants") and not (named["cpu"] and named["memory"]):
        variants = ", ".join(str(one.get("name")) for one in spec["variants"])
        raise UsageError(
            f"--like {name}: its variants ({variants}) need a pool each: give --cpu and --memory of one of them"
        )
    template = {field: spec.get(field) for field in OF_A_MODEL}
    template["modelFormat"] = spec.get("modelFormat") or (model.get("status") or {}).get("modelFormat")
    if not (template["modelFormat"] or named["model_format"]):
        raise UsageError(
            f"--like {name}: no server has found its format yet: give --format, or try again once the model is ready"
        )
    resources = spec.get("resources") or {}
    return {**template, "resources": {part: resources.get(part) for part in ("cpu", "memory")}}


def _merged(template: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`template` with what the options say over it."""
    resources = {**template["resources"], **over.get("resources", {})}
    return {**template, **over, "resources": resources}


def _print(session: Session, pool: Object) -> None:
    if session.output.structured:
        session.output.value(pool)
        return
    session.output.text(pool_summary(pool))
