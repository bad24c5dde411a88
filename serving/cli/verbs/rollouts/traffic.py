"""`knodel traffic`."""

from __future__ import annotations

import click

from serving.cli.base.errors import UsageError
from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.names import shares as of_traffic
from serving.cli.verbs.rollouts.changes import change_split
from serving.reconciler.rollout.commands import traffic


@verb(
    "traffic",
    examples=[
        ("Send 10 % of the traffic to the latest ready version", "knodel traffic iris iris-00001=90 latest=10"),
        ("Pin all traffic to one version", "knodel traffic iris iris-00001=100"),
    ],
)
@model_name()
@click.argument("shares", nargs=-1, required=True, metavar="REVISION|LABEL=PERCENT...", shell_complete=of_traffic)
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def command(session: Session, name: str, shares: tuple[str, ...], timeout: str) -> None:
    """Split the traffic of the model NAME between versions; `latest` is the latest ready version."""
    targets = []
    for text in shares:
        revision, _, percent = text.rpartition("=")
        if not revision or not percent.isascii() or not percent.isdigit() or len(percent) > 3:
            raise UsageError(f"{text!r} is not REVISION=PERCENT: write for example latest=10, with 0 to 100 percent")
        targets.append((revision, int(percent)))
    change_split(session, name, timeout, lambda model, revisions: traffic(model, targets, revisions))
