"""`knodel secret`: credentials of storages, from files and variables; a command line is seen by others."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from clusters.base.errors import NotFound
from clusters.base.objects import SECRET, Object, annotations_of
from clusters.base.sizes import format_size
from serving.cli.base.errors import UsageError
from serving.cli.base.home import expand
from serving.cli.client.client import Client
from serving.cli.context import Session, verb
from serving.cli.names import files as paths
from serving.types.input_files import open_input

STDIN = "-"
LARGEST = 1 << 20  # bytes of all values of a Secret, as Kubernetes has it
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@verb(
    "secret",
    examples=[
        ("Store the credentials of AWS from the environment",
         "knodel secret s3 --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY"),
        ("Store a file under a key", "knodel secret gcs --file key.json=account.json"),
    ],
)  # fmt: skip
@click.argument("name")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="[KEY=]PATH",
    shell_complete=paths,
    help="File with a value; KEY=- reads stdin.",
)
@click.option("--env", "variables", multiple=True, metavar="KEY", help="Environment variable with a value.")
def command(session: Session, name: str, files: tuple[str, ...], variables: tuple[str, ...]) -> None:
    """Create the Secret NAME, or change the values that options name. `storage.secretRef` of a Model refers to it."""
    values = dict([*map(_from_file, files), *map(_from_variable, variables)])
    if not values:
        raise UsageError(f"what does {name} hold? give --file or --env")
    stored = _store(session.client(), name, session.namespace, values)
    keys = sorted({*(stored.get("data") or ()), *(stored.get("stringData") or ())})
    if session.output.structured:
        session.output.value(_without_values(stored))
        return
    session.output.text(f"secret {name} has {', '.join(keys)}")


def _without_values(secret: Object) -> Object:
    """The object but for its values, which kubectl notes a second time."""
    metadata = dict(secret["metadata"])
    metadata["annotations"] = {name: text for name, text in annotations_of(secret).items() if name != LAST_APPLIED}
    shown = {part: value for part, value in secret.items() if part not in ("data", "stringData")}
    return {**shown, "metadata": metadata}


def _store(client: Client, name: str, namespace: str, values: dict[str, str]) -> Object:
    try:
        # `stringData`, where a store keeps it as written, would win.
        return client.merge(SECRET, name, namespace, {"data": values, "stringData": dict.fromkeys(values)})
    except NotFound:
        metadata = {"name": name, "namespace": namespace}
        made = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": metadata, "data": values}
        return client.create(SECRET, made, namespace)


def _from_file(text: str) -> tuple[str, str]:
    key, found, path = text.partition("=")
    if not found:
        key, path = Path(text).name, text
    if found and path == STDIN:
        return key, _encoded(_bounded(text, sys.stdin.buffer))
    try:
        with open_input(expand(path)) as file:
            return key, _encoded(_bounded(text, file))
    except OSError as error:
        raise UsageError(f"--file {text}: cannot be read ({error.strerror})") from error


def _bounded(text: str, file: BinaryIO) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UsageError(
            f"--file {text}: is larger than {format_size(LARGEST)}, the largest Secret: give a smaller file"
        )
    return content


def _from_variable(name: str) -> tuple[str, str]:
    if name not in os.environ:
        raise UsageError(f"--env {name}: there is no such variable in the environment: export it, or give --file")
    return name, _encoded(os.fsencode(os.environ[name]))


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
