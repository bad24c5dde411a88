"""`knodel namespace`."""

from __future__ import annotations

import click

from clusters.objects import NAMESPACE
from serving.cli.context import Session, verb
from serving.cli.errors import UsageError


@verb("namespace")
@click.argument("name")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Set a label; KEY- removes it.")
def command(session: Session, name: str, labels: tuple[str, ...]) -> None:
    """Make the namespace NAME, or label it."""
    metadata = {"name": name, "labels": dict(_label(text) for text in labels)}
    client = session.client()
    known = [item["metadata"]["name"] for item in client.list(NAMESPACE, None)["items"]]
    if name in known:
        made = client.merge(NAMESPACE, name, "", {"metadata": {"labels": metadata["labels"]}})
    else:
        metadata["labels"] = {key: value for key, value in dict(_label(text) for text in labels).items() if value}
        made = client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}, "")
    if session.output.structured:
        session.output.value(made)
        return
    words = ",".join(f"{key}={value}" for key, value in (made["metadata"].get("labels") or {}).items())
    session.output.table(["name", "labels"], [[name, words]])


def _label(text: str) -> tuple[str, str | None]:
    key, found, value = text.partition("=")
    if found:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise UsageError(f"--label {text!r}: write KEY=VALUE, or KEY- to remove it")
