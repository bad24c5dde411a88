"""`knodel pause`."""

from __future__ import annotations

from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.changes import change_rollout
from serving.reconciler.rollout.commands import pause


@verb("pause")
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def command(session: Session, name: str, timeout: str) -> None:
    """Pause the rollout of the model NAME at its step. A failing version is still rolled back."""
    change_rollout(session, name, timeout, pause, "Paused")
