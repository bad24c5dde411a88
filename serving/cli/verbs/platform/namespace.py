"""`knodel namespace`."""

from __future__ import annotations

import click

from clusters.base.errors import NotFound
from clusters.base.objects import NAMESPACE
from serving.cli.context import Session, verb
from serving.cli.names import namespaces
from serving.client.errors import UsageError


@verb(
    "namespace",
    namespaced=False,
    examples=[
        ("Create a namespace", "knodel namespace team"),
        ("Allow formats that run code in it", "knodel namespace team --label knodel.dev/allow-code=true"),
    ],
)
@click.argument("name", shell_complete=namespaces)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label to set; KEY- removes it.")
def command(session: Session, name: str, labels: tuple[str, ...]) -> None:
    """Create the namespace NAME, or change its labels."""
    wanted: dict[str, str | None] = {}  # None removes a label
    for text in labels:
        key, found, value = text.partition("=")
        if not found and not (text.endswith("-") and len(text) > 1):
            raise UsageError(f"--label {text!r} is not KEY=VALUE: write KEY=VALUE, or KEY- to remove the label")
        wanted[key if found else text[:-1]] = value if found else None
    client = session.client()
    try:
        stored = client.merge(NAMESPACE, name, "", {"metadata": {"labels": wanted}})
    except NotFound:
        metadata = {"name": name, "labels": {key: value for key, value in wanted.items() if value is not None}}
        stored = client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    if session.output.structured:
        session.output.value(stored)
        return
    words = ",".join(f"{key}={value}" for key, value in (stored["metadata"].get("labels") or {}).items())
    session.output.table(["name", "labels"], [[name, words]])
