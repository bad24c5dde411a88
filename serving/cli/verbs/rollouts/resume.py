"""`knodel resume`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.rollout import change_rollout
from serving.reconciler.rollout.commands import resume


@verb("resume")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="Longest time to wait.")
def command(session: Session, name: str, timeout: str) -> None:
    """Resume the paused rollout of the model NAME with the rest of its step."""
    change_rollout(session, name, timeout, resume, "Progressing")
