"""`knodel delete`."""

from __future__ import annotations

import time

import click

from clusters.base.objects import MODEL, POD
from serving.cli.base.output import ProgressLine
from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.wait import parse_timeout
from serving.client.client import Client
from serving.client.errors import TimedOut
from serving.types.annotations import LABEL_MODEL

POLL = 0.2  # s between two reads of the remaining replicas


@verb("delete", prints=False, examples=[("Delete a model and wait for its replicas to end", "knodel delete iris")])
@model_name()
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until its replicas have ended.")
@timeout_option("60s")
def command(session: Session, name: str, wait: bool, timeout: str) -> None:
    """Delete the model NAME with all its versions and replicas."""
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    client.delete(MODEL, name, session.namespace)
    if wait:
        _wait_for_end(client, name, session.namespace, seconds)
    session.output.text(f"model {name} deleted")


def _wait_for_end(client: Client, name: str, namespace: str, seconds: float) -> None:
    progress, deadline = ProgressLine(), time.monotonic() + seconds
    try:
        while True:
            left = client.list(POD, namespace, f"{LABEL_MODEL}={name}")["items"]
            if not left and not client.exists(MODEL, name, namespace):
                return
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"model {name} still has {len(left)} replicas after {seconds:g} s: wait until they have finished "
                    "their requests"
                )
            progress.show(f"deleting {name}: {len(left)} replicas are finishing their requests")
            time.sleep(POLL)
    finally:
        progress.clear()
