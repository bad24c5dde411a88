"""`knodel pause`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.rollout import change_rollout
from serving.reconciler.rollout.commands import pause


@verb("pause")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="Longest time to wait until it is in force.")
def command(session: Session, name: str, timeout: str) -> None:
    """Pause the rollout of the model NAME at its step. A failing version is still rolled back."""
    change_rollout(session, name, timeout, pause, "Paused")
