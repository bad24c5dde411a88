"""`knodel abort`."""

from __future__ import annotations

from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.changes import change_rollout
from serving.reconciler.rollout.commands import abort


@verb("abort")
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def command(session: Session, name: str, timeout: str) -> None:
    """Abort the rollout of the model NAME and send all traffic to the stable version."""
    change_rollout(session, name, timeout, abort, "RolledBack")
