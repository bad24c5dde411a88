"""`knodel promote`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.shares import change_split
from serving.rollout.commands import promote


@verb("promote")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="How long to wait until it is in force.")
def command(session: Session, name: str, timeout: str) -> None:
    """Give the latest ready version of the model NAME all traffic; ends a pin or a canary."""
    change_split(session, name, timeout, lambda model, _revisions: promote(model))
