"""`knodel abort`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.rollout import change_rollout
from serving.reconciler.rollout.commands import abort


@verb("abort")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="Longest time to wait until it is in force.")
def command(session: Session, name: str, timeout: str) -> None:
    """Abort the rollout of the model NAME and send all traffic to the stable version."""
    change_rollout(session, name, timeout, abort, "RolledBack")
