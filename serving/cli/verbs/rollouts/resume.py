"""`knodel resume`."""

from __future__ import annotations

from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.changes import change_rollout
from serving.reconciler.rollout.commands import resume


@verb("resume")
@model_name()
@timeout_option("60s")
def command(session: Session, name: str, timeout: str) -> None:
    """Resume the paused rollout of the model NAME with the rest of its step."""
    change_rollout(session, name, timeout, resume, "Progressing")
