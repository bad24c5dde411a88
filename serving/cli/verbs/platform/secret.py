"""`knodel secret`: store credentials from files and variables; other users can see values on a command line."""

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
from serving.cli.context import Session, verb
from serving.cli.names import files as paths
from serving.cli.names import secrets
from serving.client.client import Client
from serving.client.errors import UsageError
from serving.client.home import expand_home
from serving.types.input_files import open_input

STDIN = "-"
LARGEST = 1 << 20  # bytes of all values of a Secret (limit of Kubernetes)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@verb(
    "secret", takes_env=False,
    examples=[
        ("Store the credentials of AWS from the environment",
         "knodel secret s3 --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY"),
        ("Store a file under a key", "knodel secret gcs --file key.json=account.json"),
    ],
)  # fmt: skip
@click.argument("name", shell_complete=secrets)
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
    """Create the Secret NAME, or set some of its values. A Model refers to it by `storage.secretRef`."""
    values = dict(map(_from_file, files))
    for variable in variables:
        if variable not in os.environ:
            raise UsageError(f"--env {variable} is not a variable of the environment: export it, or give --file")
        values[variable] = _encoded(os.fsencode(os.environ[variable]))
    if not values:
        raise UsageError(f"no value for secret {name} is given: give --file or --env")
    stored = _store(session.client(), name, session.namespace, values)
    keys = sorted({*(stored.get("data") or ()), *(stored.get("stringData") or ())})
    if session.output.structured:
        session.output.value(_without_values(stored))
        return
    session.output.text(f"secret {name} has {', '.join(keys)}")


def _without_values(secret: Object) -> Object:
    """Return the object without its values, which kubectl also stores in an annotation."""
    metadata = dict(secret["metadata"])
    metadata["annotations"] = {name: text for name, text in annotations_of(secret).items() if name != LAST_APPLIED}
    shown = {part: value for part, value in secret.items() if part not in ("data", "stringData")}
    return {**shown, "metadata": metadata}


def _store(client: Client, name: str, namespace: str, values: dict[str, str]) -> Object:
    try:
        # A store that keeps `stringData` would let it override `data`: remove it.
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
        with open_input(expand_home(path)) as file:
            return key, _encoded(_bounded(text, file))
    except OSError as error:
        raise UsageError(f"--file {text} cannot be read ({error.strerror})") from error


def _bounded(text: str, file: BinaryIO) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UsageError(
            f"--file {text} is larger than {format_size(LARGEST)}, the limit of a Secret: give a smaller file"
        )
    return content


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
