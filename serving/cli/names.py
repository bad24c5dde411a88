"""Arguments and options for names of objects and files, with their shell completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from clusters.base.errors import KnodelError
from clusters.base.objects import (
    EVENT_SOURCE,
    MODEL,
    MODEL_EVENT,
    NAMESPACE,
    REVISION,
    SECRET,
    WARM_POOL,
    Kind,
    Object,
    name_of,
)
from serving.cli.context import before_the_verb
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.targets import find_target
from serving.types.annotations import LABEL_MODEL

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

COMPLETION_TIMEOUT = 1.0  # s; completion must not delay typing for longer
LATEST = "latest"
"""The name of the latest ready version in a traffic split."""


def model_name(required: bool = True) -> Callable[[F], F]:
    """Add the argument NAME for a Model."""
    return click.argument("name", required=required, shell_complete=models)


def pool_name() -> Callable[[F], F]:
    """Add the argument POOL for a WarmPool."""
    return click.argument("name", metavar="POOL", shell_complete=pools)


def models_file(required: bool = True) -> Callable[[F], F]:
    """Add the option `-f FILE` for a file with Models."""
    about = "File with Models, as YAML or JSON."
    return click.option("-f", "--file", "source", required=required, metavar="FILE|-", shell_complete=files, help=about)


def models(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a Model."""
    return names_of(MODEL, context, incomplete)


def pools(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a WarmPool."""
    return names_of(WARM_POOL, context, incomplete)


def secrets(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a Secret."""
    return names_of(SECRET, context, incomplete)


def revisions(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a revision of the Model that the argument NAME selects."""
    model = _model_of(context)
    return names_of(REVISION, context, incomplete, f"{LABEL_MODEL}={model}" if model else "")


def shares(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the revision in a traffic share `REVISION=PERCENT`."""
    latest = [LATEST] if LATEST.startswith(incomplete) else []
    return [f"{name}=" for name in (*revisions(context, parameter, incomplete), *latest)]


def _model_of(context: click.Context) -> str:
    """Return the argument NAME; click has not assigned it yet while the value of an option is completed."""
    return str(context.params.get("name") or next(iter(context.args), ""))


def tags(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete a tag of the Model that the argument NAME selects."""
    model = _model_of(context)
    found = (one for one in _objects(MODEL, context) if name_of(one) == model)
    shares = (share for one in found for share in (one.get("status") or {}).get("traffic") or ())
    return [tag for share in shares if (tag := str(share.get("tag") or "")) and tag.startswith(incomplete)]


def events(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the id of a ModelEvent."""
    ids = (str((one.get("spec") or {}).get("id", "")) for one in _objects(MODEL_EVENT, context))
    return [one for one in ids if one and one.startswith(incomplete)]


def namespaces(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a Namespace."""
    return names_of(NAMESPACE, context, incomplete)


def sources(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Complete the source of an EventSource."""
    found = (str((one.get("spec") or {}).get("source", "")) for one in _objects(EVENT_SOURCE, context))
    return [source for source in found if source and source.startswith(incomplete)]


def formats(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a model format."""
    from serving.engines.base.registry import FORMATS  # heavy; only this completion needs it

    return [name for name in FORMATS if name.startswith(incomplete)]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a path; do not complete a URI."""
    from click.shell_completion import CompletionItem  # takes 3 ms; only completion pays

    return [] if "://" in incomplete else [CompletionItem(incomplete, type="file")]


def name_of_path(path: str) -> str:
    """Return the name of the model at a path or URI: that of its file or folder. Raises UsageError.

    Example:
        name_of_path("./models/Iris_v2.onnx")  # "iris-v2"
    """
    stem = Path(path.rstrip("/")).name.split(".")[0].lower()
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in stem).strip("-")
    if not name:
        raise UsageError(f"no model name can be derived from {path!r}: give one with --name")
    return name


def names_of(kind: Kind, context: click.Context, incomplete: str, selector: str = "") -> list[str]:
    """Return the names of objects with this prefix; none if the cluster cannot be reached.

    Completion must not print errors.
    """
    return [name for name in map(name_of, _objects(kind, context, selector)) if name.startswith(incomplete)]


def _objects(kind: Kind, context: click.Context, selector: str = "") -> Iterator[Object]:
    given = context.params
    try:
        kube_context = before_the_verb(context, "kube_context", given.get("kube_context"))
        target = find_target(given.get("state"), kube_context, before_the_verb(context, "env", given.get("env")))
        namespace = given.get("namespace") or target.namespace
        yield from Client(target.ref.server(), COMPLETION_TIMEOUT).list(kind, namespace, selector)["items"]
    except KnodelError:
        return
