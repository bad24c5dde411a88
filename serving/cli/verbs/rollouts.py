"""The verbs that change the traffic or the rollout of a Model: they wait for the result and print it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from clusters.base.objects import MODEL, REVISION, Object, generation_of
from serving.cli.change import change_model
from serving.cli.context import Session, timeout_option, verb
from serving.cli.names import model_name
from serving.cli.names import revisions as complete_revisions
from serving.cli.names import shares as complete_shares
from serving.cli.texts import rollout_lines
from serving.cli.wait import (
    is_routed,
    parse_timeout,
    report_stored_change,
    wait_until,
    wait_until_ready,
    wait_until_routed,
)
from serving.client.errors import ClientError, UsageError
from serving.reconciler.rollout import commands
from serving.reconciler.rollout.state import Phase, RolloutState, join_reasons, rollout_of
from serving.types.annotations import LABEL_MODEL
from serving.types.rollout import ALL

PROMOTED: Phase = "Promoted"
"""The phase that a rolled-back rollout can still reach."""
COLLECTED = "the revision of that version was deleted: a new one is created from its record and starts a rollout"


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
    change_split(session, name, timeout, lambda model, revisions: commands.traffic(model, targets, revisions))


@verb("promote", examples=[("Send all traffic to the newest ready version", "knodel promote iris")])
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def promote_command(session: Session, name: str, timeout: str) -> None:
    """Send all traffic of the model NAME to its latest ready version; ends a pin, a canary or a rollout."""
    model = session.client(parse_timeout(timeout)).get(MODEL, name, session.namespace)
    if commands.promoted_by(model):
        change_rollout(session, name, timeout, commands.promote, "Promoted")
    else:
        change_split(session, name, timeout, lambda model, _revisions: commands.promote(model))


@verb("pause", examples=[("Keep the rollout at its step", "knodel pause iris")])
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def pause_command(session: Session, name: str, timeout: str) -> None:
    """Pause the rollout of the model NAME at its step. A failing version is still rolled back."""
    change_rollout(session, name, timeout, commands.pause, "Paused")


@verb("resume", examples=[("Continue the rollout", "knodel resume iris")])
@model_name()
@timeout_option("60s")
def resume_command(session: Session, name: str, timeout: str) -> None:
    """Resume the paused rollout of the model NAME with the rest of its step."""
    change_rollout(session, name, timeout, commands.resume, "Progressing")


@verb("abort", examples=[("Go back to the stable version", "knodel abort iris")])
@model_name()
@timeout_option("60s", "Maximum time to wait until the change is applied.")
def abort_command(session: Session, name: str, timeout: str) -> None:
    """Abort the rollout of the model NAME and send all traffic to the stable version."""
    change_rollout(session, name, timeout, commands.abort, "RolledBack")


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
    change_split(session, name, timeout, lambda model, revisions: commands.rollback(model, revisions, to))


def change_rollout(
    session: Session, name: str, timeout: str, patch_of: Callable[[Object], dict[str, Any]], phase: Phase
) -> None:
    """Apply the patch, wait until the rollout has the phase and the traffic matches, and print both.

    Raises ClientError when the rollout ends in another phase, and the errors of `change_model` and `wait_until`.
    """
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    generation = generation_of(change_model(client, name, session.namespace, patch_of))

    def done(model: Object) -> bool:
        state = rollout_of(model)
        if state is None:
            return is_routed(model, generation)  # the Model had no rollout
        if state.phase != phase and not state.runs and phase != PROMOTED:
            raise ClientError(
                f"the rollout of {state.candidate} has ended: {state.phase}: {join_reasons(state.reasons)}"
            )
        return state.phase == phase and _follows(model, state)

    with report_stored_change(name):
        model = wait_until(client, name, session.namespace, seconds, done)
    show_split(session, model)
    if not session.output.structured:
        for line in rollout_lines(model):
            session.output.text(line)


def change_split(
    session: Session, name: str, timeout: str, patch_of: Callable[[Object, list[Object]], dict[str, Any]]
) -> None:
    """Apply the patch that `patch_of` returns for (Model, Revisions), wait until it is applied, print the split."""
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    client.get(MODEL, name, session.namespace)
    revisions = client.list(REVISION, session.namespace, f"{LABEL_MODEL}={name}")["items"]
    sent: dict[str, Any] = {}

    def patch(model: Object) -> dict[str, Any]:
        sent.update(patch_of(model, revisions))
        return sent

    changed = change_model(client, name, session.namespace, patch)
    makes_a_version = "storageUri" in sent.get("spec", {})  # a rollback to a garbage-collected version
    if makes_a_version and (changed.get("spec") or {}).get("rollout") is not None:
        session.output.warn(f"{COLLECTED}: `knodel promote {name}` sends it all the traffic at once")
    wait = wait_until_ready if makes_a_version else wait_until_routed
    show_split(session, wait(client, name, session.namespace, seconds, generation_of(changed)))


def show_split(session: Session, model: Object) -> None:
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


def _follows(model: Object, state: RolloutState) -> bool:
    """Return whether the traffic in the status matches the outcome of an ended rollout."""
    wanted = {"Promoted": ALL, "RolledBack": 0}.get(state.phase)
    traffic = (model.get("status") or {}).get("traffic") or ()
    loser = state.stable if wanted == ALL else state.candidate
    return wanted is None or not any(one.get("revision") == loser and one.get("percent") for one in traffic)
