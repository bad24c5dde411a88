"""`knodel traffic`."""

from __future__ import annotations

import click

from serving.cli.base.errors import UsageError
from serving.cli.context import Session, verb
from serving.cli.names import model_name
from serving.cli.names import shares as of_traffic
from serving.cli.verbs.rollouts.shares import change_split
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
@click.option("--timeout", default="60s", show_default=True, help="Longest time to wait until it is in force.")
def command(session: Session, name: str, shares: tuple[str, ...], timeout: str) -> None:
    """Split the traffic of the model NAME between versions; `latest` is the latest ready version."""
    targets = [_share(text) for text in shares]
    change_split(session, name, timeout, lambda model, revisions: traffic(model, targets, revisions))


def _share(text: str) -> tuple[str, int]:
    revision, _, percent = text.rpartition("=")
    if not revision or not percent.isascii() or not percent.isdigit() or len(percent) > 3:
        raise UsageError(f"{text!r} is no share: write REVISION=PERCENT, such as latest=10, percents from 0 to 100")
    return revision, int(percent)
