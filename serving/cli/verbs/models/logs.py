"""`knodel logs`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name, revisions
from serving.client.errors import UsageError
from serving.client.models.logs import logs


@verb(
    "logs",
    prints=False,
    examples=[
        ("Print the last 20 lines of each replica", "knodel logs iris --tail 20"),
        ("Follow the logs of one version", "knodel logs iris -f --revision iris-00002"),
    ],
)
@model_name()
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, also of new replicas.")
@click.option("--tail", type=click.IntRange(min=0), help="Number of lines to print from the end of each log.")
@click.option(
    "--revision", metavar="REVISION|LABEL", default="", shell_complete=revisions,
    help="Print only the logs of this version.",
)  # fmt: skip
@click.option("-p", "--previous", is_flag=True, help="Print the logs of containers before their last restart.")
def command(session: Session, name: str, follow: bool, tail: int | None, revision: str, previous: bool) -> None:
    """Print the logs of the replicas of the model NAME.

    If the model has no replica, print the logs of replicas that ended in the last day; a cluster does not keep them.
    """
    if follow and previous:
        raise UsageError("--previous prints logs that have ended: omit --follow")
    client = session.client()
    lines = logs(
        client.core, name, session.namespace, state=None if session.kube else session.state,
        follow=follow, tail=tail, revision=revision, previous=previous,
    )  # fmt: skip
    for replica, line, alone in client.driver.iterate(lines):
        session.output.raw(line if alone else f"[{replica}] ".encode() + line)
