"""`knodel pause`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.rollouts import change_rollout
from serving.rollout.commands import pause


@verb("pause")
@model_name()
@click.option("--timeout", default="60s", show_default=True, help="How long to wait until it is so.")
def command(session: Session, name: str, timeout: str) -> None:
    """Hold the rollout of the model NAME at its step until `knodel resume`; a bad one is rolled back all the same."""
    change_rollout(session, name, timeout, pause, "Paused")
