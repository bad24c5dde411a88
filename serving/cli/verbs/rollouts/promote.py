"""`knodel promote`."""

from __future__ import annotations

from clusters.base.objects import MODEL
from serving.cli.client.wait import parse_timeout
from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.verbs.rollouts.changes import change_rollout, change_split
from serving.reconciler.rollout.commands import promote, promoted_by


@verb("promote")
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def command(session: Session, name: str, timeout: str) -> None:
    """Send all traffic of the model NAME to its latest ready version; ends a pin, a canary or a rollout."""
    model = session.client(parse_timeout(timeout)).get(MODEL, name, session.namespace)
    if promoted_by(model):
        change_rollout(session, name, timeout, promote, "Promoted")
    else:
        change_split(session, name, timeout, lambda model, _revisions: promote(model))
