"""`knodel delete`."""

from __future__ import annotations

import click

from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.cli.names import model_name
from serving.client.models.deletion import delete_model


@verb("delete", prints=False, examples=[("Delete a model and wait for its replicas to end", "knodel delete iris")])
@model_name()
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its replicas have ended.")
@timeout_option("60s")
def command(session: Session, name: str, wait: bool, timeout: str) -> None:
    """Delete the model NAME with all its versions and replicas."""
    seconds = parse_timeout(timeout)
    session.client(seconds).call(delete_model, name, session.namespace, seconds if wait else None)
    session.output.text(f"model {name} deleted")
