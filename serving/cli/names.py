"""The arguments NAME and POOL of the verbs that act on one object, with completion of names that the platform knows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from clusters.errors import KnodelError
from clusters.objects import MODEL, WARM_POOL, Kind, name_of
from serving.cli.client import Client
from serving.cli.context import DEFAULT_NAMESPACE, find_context, group_context
from serving.cli.state import Platform, state_folder

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE = 1.0  # s; who pressed Tab does not wait longer


def model_name(required: bool = True) -> Callable[[F], F]:
    """Adds the argument NAME, of a Model."""
    return click.argument("name", required=required, shell_complete=partial(_known, MODEL))


def pool_name() -> Callable[[F], F]:
    """Adds the argument POOL, of a WarmPool."""
    return click.argument("name", metavar="POOL", shell_complete=partial(_known, WARM_POOL))


def _known(kind: Kind, context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Names that begin so; none without a platform, as an error would spoil the line that is being typed."""
    given = context.params
    try:
        kube = find_context(given.get("state"), given.get("kube_context") or group_context(context))
        server = kube.connect() if kube else Platform.find(state_folder(given.get("state")))
        namespace = given.get("namespace") or (kube.namespace if kube else DEFAULT_NAMESPACE)
        found = Client(server, PATIENCE).list(kind, namespace)
    except KnodelError:
        return []
    return [name for name in map(name_of, found["items"]) if name.startswith(incomplete)]
