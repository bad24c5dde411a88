"""`knodel delete`."""

from __future__ import annotations

import time

import click

from clusters.errors import NotFound
from clusters.objects import LABEL_CONFIGURATION, MODEL, POD
from serving.cli.context import Session, verb
from serving.cli.errors import NotInTime
from serving.cli.output import Progress
from serving.cli.wait import parse_timeout

POLL = 0.2  # s between two looks at what is left


@verb("delete")
@click.argument("name")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return once its replicas are gone.")
@click.option("--timeout", default="60s", show_default=True, help="How long to wait at most.")
def command(session: Session, name: str, wait: bool, timeout: str) -> None:
    """Delete the model NAME with all its versions and replicas."""
    seconds = parse_timeout(timeout)
    client = session.client()
    client.delete(MODEL, name, session.namespace)
    if wait:
        _wait_for_end(session, name, seconds)
    session.output.text(f"model {name} deleted")


def _wait_for_end(session: Session, name: str, seconds: float) -> None:
    client, progress, deadline = session.client(), Progress(), time.monotonic() + seconds
    while True:
        left = client.list(POD, session.namespace, f"{LABEL_CONFIGURATION}={name}")["items"]
        if not left and not _exists(session, name):
            progress.clear()
            return
        if time.monotonic() > deadline:
            progress.clear()
            raise NotInTime(
                f"model {name} still has {len(left)} replicas after {seconds:g} s: they finish their requests"
            )
        progress.show(f"deleting {name}: {len(left)} replicas finish their requests")
        time.sleep(POLL)


def _exists(session: Session, name: str) -> bool:
    try:
        session.client().get(MODEL, name, session.namespace)
    except NotFound:
        return False
    return True
