"""`knodel rollback`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.shares import change_split
from serving.rollout.commands import rollback


@verb("rollback")
@model_name()
@click.option("--to", "to", metavar="REVISION", help="The version to go back to [the one before].")
@click.option("--timeout", default="60s", show_default=True, help="How long to wait until it is in force.")
def command(session: Session, name: str, to: str | None, timeout: str) -> None:
    """Give all traffic of the model NAME to the version that had it before, and pin it there."""
    change_split(session, name, timeout, lambda model, revisions: rollback(model, revisions, to))
