"""`knodel import`: convert InferenceServices of KServe and Services of Knative to Models."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from clusters.base.objects import Object, name_of, namespace_of
from clusters.net.strict_yaml import LARGEST_TEXT, LoadError, load_documents
from serving.cli.base.output import Output
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.cli.names import files
from serving.client.errors import INCOMPLETE, UsageError
from serving.importing.convert import convert
from serving.importing.report import report_lines, summary_line
from serving.types.input_files import open_input

SUFFIXES = (".yaml", ".yml", ".json")
MOST_FILES = 1000  # of a folder


@verb(
    "import",
    examples=[
        ("Print the Models for InferenceServices", "knodel import -f isvc.yaml"),
        ("Deploy them", "knodel import -f isvc.yaml --apply"),
        ("Convert the output of `kubectl get isvc -A -o yaml`", "knodel import -f -"),
    ],
)
@click.option("-f", "--file", "source", required=True, metavar="FILE|DIR|-", shell_complete=files,
              help="File or folder with the objects, as YAML or JSON.")  # fmt: skip
@click.option("--storage", "named_stores", multiple=True, metavar="KEY=URI",
              help="Store of `storage.key` in InferenceServices, such as s3://BUCKET; repeatable.")  # fmt: skip
@click.option("--apply", is_flag=True, help="Deploy the Models, as `knodel deploy -f FILE` does.")
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="With --apply, wait until the models are ready."
)
@timeout_option("300s")
def import_command(
    session: Session, source: str, named_stores: tuple[str, ...], apply: bool, wait: bool, timeout: str
) -> int:
    """Convert InferenceServices of KServe, and Knative Services that run a known model server, to Models.

    The Models are printed. A report on stderr has each field that no Model has, with the reason and what to do. The
    exit code is 5 when a field or an object was left out, and 0 when nothing was.
    """
    seconds = parse_timeout(timeout)
    stores = _stores(named_stores)
    found = [(file, convert(document, stores)) for file, document in _documents(source)]
    conversions = [conversion for _, conversion in found]
    models = [_placed(session, model, apply) for conversion in conversions for model in conversion.models]
    _check_unique(models)
    for file, conversion in found:
        for line in report_lines(conversion, file):
            session.output.warn(line)
    session.output.warn(summary_line(conversions))
    if apply and models:
        from serving.cli.verbs.models.deploy import deploy_objects  # heavy; printing does not need it

        deploy_objects(session, session.client(seconds), models, seconds, wait=wait)
    elif models:
        output = session.output if session.output.structured else Output("yaml")
        output.value(models[0] if len(models) == 1 else {"apiVersion": "v1", "kind": "List", "items": models})
    return INCOMPLETE if any(one.left_out for one in conversions) else 0


def _stores(named: Sequence[str]) -> dict[str, str]:
    """Return the URI of each key. Raises UsageError."""
    stores = {}
    for text in named:
        key, separator, uri = text.partition("=")
        if not (key and separator and "://" in uri):
            raise UsageError(f"--storage {text} is not KEY=URI, such as default=s3://BUCKET")
        stores[key] = uri
    return stores


def _placed(session: Session, model: Object, apply: bool) -> Object:
    """Return the Model in the namespace of the command, if it has none and the command needs or has one."""
    if namespace := model["metadata"].get("namespace"):
        if session.namespace_given and namespace != session.namespace:
            given = session.namespace
            raise UsageError(f"{name_of(model)} is in namespace {namespace}, not {given}: omit -n, or correct one")
        return model
    if not apply and not session.namespace_given:
        return model
    return {**model, "metadata": {**model["metadata"], "namespace": session.namespace}}


def _check_unique(models: Sequence[Object]) -> None:
    """Raise UsageError for two Models of one name."""
    counts = Counter((namespace_of(model), name_of(model)) for model in models)
    twice = [name for (_, name), count in counts.items() if count > 1]
    if twice:
        raise UsageError(f"several objects have the name {' and the name '.join(twice)}: import one of them at a time")


def _documents(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the file and the content of each object. Raises UsageError."""
    found = False
    for file, text in _texts(source):
        try:
            documents = load_documents(text, file)
        except LoadError as error:
            raise UsageError(str(error)) from error
        for number, document in enumerate(documents, start=1):
            for item in _items(document):
                if not isinstance(item, dict):
                    raise UsageError(f"{file}, document {number} is not an object with apiVersion and kind")
                found = True
                yield file, item
    if not found:
        raise UsageError(f"{source} has no object: give a file with InferenceServices")


def _items(document: Any) -> list[Any]:
    """Return the items of a list, as kubectl prints one, else the document itself."""
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
        if isinstance(items, list):
            return items
    return [document]


def _texts(source: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of stdin, a file, or each file of a folder. Raises UsageError."""
    if source == "-":
        try:
            yield "stdin", sys.stdin.read(LARGEST_TEXT + 1)
        except UnicodeDecodeError as error:
            raise UsageError("stdin is not UTF-8 text: give YAML or JSON") from error
        return
    path = Path(source)
    paths = [path]
    if path.is_dir():
        paths = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES and one.is_file())
        if not paths or len(paths) > MOST_FILES:
            raise UsageError(f"{source} has {len(paths)} files {', '.join(SUFFIXES)}: give 1 to {MOST_FILES}")
    for one in paths:
        try:
            with open_input(one) as file:
                content = file.read(LARGEST_TEXT + 1)
            yield str(one), content.decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"cannot read {one}: {reason}") from error
