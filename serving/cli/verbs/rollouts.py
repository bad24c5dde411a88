"""The verbs that change the traffic or the rollout of a Model: they wait for the result and print it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

import click

from clusters.base.objects import Object
from serving.cli.context import Session, environments, parse_timeout, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.names import revisions as complete_revisions
from serving.cli.names import shares as complete_shares
from serving.cli.texts import rollout_lines
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.errors import UsageError
from serving.client.models import rollouts

P = ParamSpec("P")


@verb(
    "traffic",
    examples=[
        ("Send 10 % of the traffic to the latest ready version", "knodel traffic iris iris-00001=90 latest=10"),
        ("Pin all traffic to one version", "knodel traffic iris iris-00001=100"),
    ],
)
@model_name()
@click.argument("shares", nargs=-1, required=True, metavar="REVISION|LABEL=PERCENT...", shell_complete=complete_shares)
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def traffic_command(session: Session, name: str, shares: tuple[str, ...], timeout: str) -> None:
    """Split the traffic of the model NAME between versions; `latest` is the latest ready version."""
    targets = []
    for text in shares:
        revision, _, percent = text.rpartition("=")
        if not revision or not percent.isascii() or not percent.isdigit() or len(percent) > 3:
            raise UsageError(f"{text!r} is not REVISION=PERCENT: write for example latest=10, with 0 to 100 percent")
        targets.append((revision, int(percent)))
    _show_split(session, _changed(session, name, timeout, rollouts.set_traffic, targets))


@verb(
    "promote",
    examples=[
        ("Send all traffic to the newest ready version", "knodel promote iris"),
        ("Roll out the version that serves in another environment", "knodel promote iris --to prod"),
    ],
)
@model_name()
@click.option("--to", "to", metavar="ENV", shell_complete=environments,
              help="Deploy the version with all traffic in this environment, with the same bytes.")  # fmt: skip
@click.option("--rollout/--no-rollout", default=None,
              help="With --to: roll it out in judged steps, if the model exists there [rollout].")  # fmt: skip
@click.option("--wait/--no-wait", default=None, help="With --to: wait until it is ready or has failed [wait].")
@click.option("--timeout", metavar="DURATION",
              help="Maximum time to wait until the change is applied [60s; with --to 300s].")  # fmt: skip
def promote_command(
    session: Session, name: str, to: str | None, rollout: bool | None, wait: bool | None, timeout: str | None
) -> None:
    """Send all traffic of the model NAME to its latest ready version; ends a pin, a canary or a rollout.

    With --to ENV, deploy the version with all traffic in another environment: the same bytes, rolled out in judged
    steps. Other fields of a model that exists there keep their values.
    """
    if to is not None:
        from serving.cli.verbs.promotion import promote_to_environment

        promote_to_environment(session, name, to, rollout is not False, wait is not False, timeout or "300s")
        return
    for option, value in (("--rollout", rollout), ("--wait", wait)):
        if value is not None:
            raise UsageError(f"{option} has an effect only with --to ENV: omit it, or give both")
    _show(session, _changed(session, name, timeout or "60s", rollouts.promote))


@verb("pause", examples=[("Keep the rollout at its step", "knodel pause iris")])
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def pause_command(session: Session, name: str, timeout: str) -> None:
    """Pause the rollout of the model NAME at its step. A failing version is still rolled back."""
    _show(session, _changed(session, name, timeout, rollouts.pause))


@verb("resume", examples=[("Continue the rollout", "knodel resume iris")])
@model_name()
@timeout_option("60s")
def resume_command(session: Session, name: str, timeout: str) -> None:
    """Resume the paused rollout of the model NAME with the rest of its step."""
    _show(session, _changed(session, name, timeout, rollouts.resume))


@verb("abort", examples=[("Go back to the stable version", "knodel abort iris")])
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def abort_command(session: Session, name: str, timeout: str) -> None:
    """Abort the rollout of the model NAME and send all traffic to the stable version."""
    _show(session, _changed(session, name, timeout, rollouts.abort))


@verb(
    "rollback",
    examples=[
        ("Go back to the previous version", "knodel rollback iris"),
        ("Go back to one version", "knodel rollback iris --to iris-00001"),
    ],
)
@model_name()
@click.option(
    "--to",
    "to",
    metavar="REVISION|LABEL",
    shell_complete=complete_revisions,
    help="Version to go back to [the previous one].",
)
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def rollback_command(session: Session, name: str, to: str | None, timeout: str) -> None:
    """Send all traffic of the model NAME to the version that had it before, and pin it there."""
    _show_split(session, _changed(session, name, timeout, rollouts.rollback, to))


def _changed(
    session: Session,
    name: str,
    timeout: str,
    operation: Callable[Concatenate[ApiCalls, str, str, float, P], Call[Object]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Object:
    """Return the Model after an operation of `serving.client.models.rollouts`."""
    seconds = parse_timeout(timeout)
    return session.client(seconds).call(operation, name, session.namespace, seconds, *args, **kwargs)


def _show(session: Session, model: Object) -> None:
    """Print the traffic and the rollout of a Model."""
    _show_split(session, model)
    if not session.output.structured:
        for line in rollout_lines(model):
            session.output.text(line)


def _show_split(session: Session, model: Object) -> None:
    """Print the traffic of a Model."""
    if session.output.structured:
        session.output.value(model)
        return
    entries = (model.get("status") or {}).get("traffic") or []
    rows = [
        [entry.get("revision"), entry.get("percent") or 0, entry.get("tag", ""), entry.get("version", "")]
        for entry in entries
    ]
    session.output.table(["revision", "percent", "tag", "version"], rows)
