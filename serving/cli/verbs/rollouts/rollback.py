"""`knodel rollback`."""

from __future__ import annotations

import click

from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name, revisions
from serving.cli.verbs.rollouts.changes import change_split
from serving.reconciler.rollout.commands import rollback


@verb(
    "rollback",
    examples=[
        ("Go back to the previous version", "knodel rollback iris"),
        ("Go back to one version", "knodel rollback iris --to iris-00001"),
    ],
)
@model_name()
@click.option(
    "--to", "to", metavar="REVISION|LABEL", shell_complete=revisions, help="Version to go back to [the previous one]."
)
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def command(session: Session, name: str, to: str | None, timeout: str) -> None:
    """Send all traffic of the model NAME to the version that had it before, and pin it there."""
    change_split(session, name, timeout, lambda model, revisions: rollback(model, revisions, to))
