"""`knodel resume`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.rollouts import change_rollout
from serving.rollout.commands import resume


@verb("resume")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="How long to wait until it is so.")
def command(session: Session, name: str, timeout: str) -> None:
    """Let the paused rollout of the model NAME go on with what is left of its step."""
    change_rollout(session, name, timeout, resume, "Progressing")
