"""`knodel pool`: list, create, change and delete WarmPools."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.spec import AUTO
from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, WARM_POOL, Object, is_true, name_of, namespace_of
from serving.cli.context import Session, all_namespaces_option, verb
from serving.cli.gpu_options import gpu_options, take_gpu_fields
from serving.cli.listing import Listing, show_list, watch_option
from serving.cli.names import formats, models, pool_name
from serving.cli.texts import pool_summary
from serving.client.client import Client
from serving.client.errors import DoesNotExist, TimedOut, UsageError
from serving.client.models.changes import change_object, store_object
from serving.client.models.waiting import wait_until
from serving.control_api.table import age_of, columns_of
from serving.types.lifecycle import READY
from serving.types.model import format_of
from serving.types.resources import Resources
from serving.types.tables import table_of
from serving.types.warm_pool import LONGEST_SIZE, OF_A_MODEL

FORMAT_TIMEOUT = 10.0  # s for the format of a model to be reported after it became ready


@click.group("pool")
def command() -> None:
    """Manage warm pools: servers that run without a model, so that models start faster."""


@verb("list", examples=[("List the warm pools of all namespaces", "knodel pool list -A"),
                        ("Show changes as they happen", "knodel pool list --watch")])  # fmt: skip
@all_namespaces_option
@watch_option
def list_pools(session: Session, all_namespaces: bool, watch: bool) -> None:
    """List warm pools."""
    columns = columns_of(WARM_POOL)

    def row(item: Object, now: datetime) -> list[object]:
        cells = [column.cell(item) for column in columns]
        return [*([namespace_of(item)] if all_namespaces else []), name_of(item), *cells, age_of(item, now)]

    heads = [*(["namespace"] if all_namespaces else []), "name", *(column.name for column in columns), "age"]
    show_list(session, Listing(WARM_POOL, heads, row), None if all_namespaces else session.namespace, watch=watch)


@verb(
    "set",
    examples=[
        ("Keep two servers ready for models like iris", "knodel pool set fast --size 2 --like iris"),
        ("Adapt the size to the arrivals, up to 5 servers", "knodel pool set fast --size auto --max 5"),
    ],
)
@pool_name()
@click.option("--size", metavar="N|auto", help="Number of members to keep ready; auto adapts it to the arrivals.")
@click.option("--min", "least", type=int, help="Minimum number of members, with --size auto.")
@click.option("--max", "most", type=int, help="Maximum number of members, with --size auto.")
@click.option("--max-age", metavar="DURATION", help="Age at which members are replaced.")
@click.option("--budget-cpu", metavar="QUANTITY", help="Maximum cores that all members request in total.")
@click.option("--budget-memory", metavar="QUANTITY", help="Maximum memory that all members request in total.")
@click.option("--like", metavar="MODEL", shell_complete=models, help="Configure members that this model can claim.")
@click.option("--cpu", metavar="QUANTITY", help="Cores of each member.")
@click.option("--memory", metavar="QUANTITY", help="Memory of each member.")
@gpu_options("of each member")
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
    """Create or change the warm pool POOL. Fields without an option keep their values."""
    client = session.client()
    if size not in (None, AUTO) and not (named["least"] is None and named["most"] is None):
        raise UsageError(f"--min and --max limit the size {AUTO}: omit them, or give --size {AUTO} instead of {size}")
    spec = _spec(size, named)
    if like is not None:
        template, given = _class_of(client, like, session.namespace, named), spec.get("template") or {}
        resources = {**template["resources"], **given.get("resources", {})}
        spec["template"] = {**template, **given, "resources": resources}
    if not spec:
        raise UsageError(f"no change to warm pool {name} is given: give --size N, or an option for another field")
    metadata = {"name": name, "namespace": session.namespace}
    wanted = {"apiVersion": WARM_POOL.api_version, "kind": WARM_POOL.kind, "metadata": metadata, "spec": spec}
    _print(session, client.call(store_object, WARM_POOL, wanted))


@verb("off", examples=[("End the members of a pool, and keep the pool", "knodel pool off fast")])
@pool_name()
def turn_off(session: Session, name: str) -> None:
    """Set the size of the warm pool POOL to 0."""
    _print(
        session,
        session.client().call(change_object, WARM_POOL, name, session.namespace, lambda _: {"spec": {"size": 0}}),
    )


@verb("delete", prints=False, examples=[("Delete a pool with its members", "knodel pool delete fast")])
@pool_name()
def delete_pool(session: Session, name: str) -> None:
    """Delete the warm pool POOL with its members."""
    session.client().delete(WARM_POOL, name, session.namespace)
    session.output.text(f"warm pool {name} deleted")


for _one in (list_pools, set_pool, turn_off, delete_pool):
    command.add_command(_one)


def _spec(size: str | None, named: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the spec for the given options."""
    resources = {"cpu": named["cpu"], "memory": named["memory"]}
    gpus = take_gpu_fields(named) or {}
    template = {
        "modelFormat": named["model_format"],
        "resources": {**_given(resources), **gpus},
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
        raise UsageError(f"--size {text!r} is not a size: give a number of members, or {AUTO}")
    return int(text)


def _class_of(client: Client, name: str, namespace: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of members that the Model can claim; its unset fields are null, so defaults apply again."""
    try:
        model = client.get(MODEL, name, namespace)
    except NotFound as error:
        raise DoesNotExist(f"--like: {error}") from error
    if not named["model_format"] and not format_of(model) and is_true(model, READY):
        with suppress(TimedOut):  # a replica reports its format shortly after it is ready
            model = client.call(wait_until, name, namespace, FORMAT_TIMEOUT, lambda found: bool(format_of(found)))
    spec: Object = model.get("spec") or {}
    if spec.get("variants") and not (named["cpu"] and named["memory"]):
        variants = ", ".join(str(one.get("name")) for one in spec["variants"])
        raise UsageError(
            f"--like {name}: each of its variants ({variants}) needs its own pool: give --cpu and --memory of one"
        )
    template = {field: spec.get(field) for field in OF_A_MODEL}
    template["modelFormat"] = format_of(model) or None
    if not (template["modelFormat"] or named["model_format"]):
        raise UsageError(
            f"--like {name}: the format of the model is not known yet: give --format, or retry when the model is ready"
        )
    resources = spec.get("resources") or {}
    return {**template, "resources": {part: resources.get(part) for part in table_of(Resources)}}


def _print(session: Session, pool: Object) -> None:
    if session.output.structured:
        session.output.value(pool)
        return
    session.output.text(pool_summary(pool))
