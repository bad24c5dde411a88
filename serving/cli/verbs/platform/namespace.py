"""`knodel namespace`."""

from __future__ import annotations

import click

from clusters.base.errors import NotFound
from clusters.base.objects import NAMESPACE, Object
from serving.cli.base.errors import UsageError
from serving.cli.client.client import Client
from serving.cli.context import Session, verb


@verb(
    "namespace",
    namespaced=False,
    examples=[
        ("Create a namespace", "knodel namespace team"),
        ("Allow formats that run code in it", "knodel namespace team --label knodel.dev/allow-code=true"),
    ],
)
@click.argument("name")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label to set; KEY- removes it.")
def command(session: Session, name: str, labels: tuple[str, ...]) -> None:
    """Create the namespace NAME, or change its labels."""
    wanted = dict(_label(text) for text in labels)
    made = _make(session.client(), name, wanted)
    if session.output.structured:
        session.output.value(made)
        return
    words = ",".join(f"{key}={value}" for key, value in (made["metadata"].get("labels") or {}).items())
    session.output.table(["name", "labels"], [[name, words]])


def _make(client: Client, name: str, labels: dict[str, str | None]) -> Object:
    """The namespace with these labels, made when it is not there; None removes a label."""
    try:
        return client.merge(NAMESPACE, name, "", {"metadata": {"labels": labels}})
    except NotFound:
        metadata = {"name": name, "labels": {key: value for key, value in labels.items() if value is not None}}
        return client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def _label(text: str) -> tuple[str, str | None]:
    key, found, value = text.partition("=")
    if found:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise UsageError(f"--label {text!r}: write KEY=VALUE, or KEY- to remove it")
