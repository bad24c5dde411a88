"""`knodel rollout`: show the rollout of a Model, once or until it ends."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import click

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, Object, name_of
from serving.cli.addresses import aligned
from serving.cli.base.output import Output
from serving.cli.context import Session, parse_timeout, verb
from serving.cli.names import model_name
from serving.client.errors import FAILED, ROLLED_BACK, TimedOut
from serving.client.models.rollout_view import (
    HEADS,
    RolloutView,
    bar,
    change_line,
    comparisons,
    is_settled,
    steps_line,
    title,
    view_of,
)
from serving.client.models.watching import DELETED, watch_objects
from serving.reconciler.rollout.commands import NoRollout
from serving.reconciler.rollout.state import Phase

TICK: Final = 1.0  # s between two updates of the times
EXIT_CODES: Final[Mapping[Phase, int]] = MappingProxyType(
    {"Promoted": 0, "RolledBack": ROLLED_BACK, "Failed": ROLLED_BACK}
)
"""Exit codes of `rollout watch` by the phase in which the rollout ended."""


@click.group("rollout")
def rollout_command() -> None:
    """Show the rollout of a model, once or until it ends."""


@verb("status", examples=[("Show the last rollout of a model", "knodel rollout status iris")])
@model_name()
def status_command(session: Session, name: str) -> None:
    """Show the last rollout of the model NAME: steps, traffic, and the judge's figures with their bounds."""
    model = session.client().get(MODEL, name, session.namespace)
    view = view_of(model, datetime.now(UTC))
    if view is None:
        raise _no_rollout(model)
    if session.output.structured:
        session.output.value(view.to_json())
    else:
        session.output.print(_text(session.output, view))


@verb(
    "watch",
    examples=[
        ("Watch a rollout until it ends", "knodel rollout watch iris"),
        ("Print a line of JSON for each change", "knodel rollout watch iris -o json"),
    ],
)
@model_name()
@click.option("--timeout", metavar="DURATION", help="Maximum time to watch [no limit].")
def watch_command(session: Session, name: str, timeout: str | None) -> int:
    """Watch the rollout of the model NAME until it ends.

    A terminal gets a view that is redrawn in place, a pipe one line for each change, and -o json one object a line. The
    exit code is 0 when the candidate is promoted, and 6 when it is rolled back or fails.
    """
    seconds = None if timeout is None else parse_timeout(timeout)
    deadline = None if seconds is None else time.monotonic() + seconds
    client, output = session.client(), session.output
    client.get(MODEL, name, session.namespace)  # raises NotFound
    last = ""
    for snapshot in client.driver.iterate(
        watch_objects(client.core, MODEL, session.namespace, name=name, tick=TICK)
    ):  # never ends by itself
        if any(change == DELETED for change, _ in snapshot.changes) or not snapshot.objects:
            raise NotFound(f"model {name} was deleted meanwhile")
        [model] = snapshot.objects
        view = view_of(model, datetime.now(UTC))
        if view is not None:
            last = _show(output, view, last)
        if is_settled(model) and (view is None or not view.state.runs):
            if view is None:
                raise _no_rollout(model)
            return EXIT_CODES[view.state.phase]
        if deadline is not None and time.monotonic() > deadline:
            state = "has not begun" if view is None else f"is {view.state.phase}"
            raise TimedOut(f"the rollout of model {name} {state} after {timeout}: the rollout continues")
    return FAILED


def _no_rollout(model: Object) -> NoRollout:
    name = name_of(model)
    if (model.get("spec") or {}).get("rollout") is not None:
        return NoRollout(f"model {name} has had no rollout: its next version is rolled out in steps")
    return NoRollout(
        f"model {name} has had no rollout: `knodel deploy {name} --rollout` rolls out its next versions in steps"
    )


def _show(output: Output, view: RolloutView, last: str) -> str:
    """Show the view if it differs from the last one. Return what identifies it."""
    if output.live:
        output.redraw(_text(output, view))
        return ""
    line = change_line(view)
    if line != last:
        if output.structured:
            output.record(view.to_json())
        else:
            output.text(f"{datetime.now(UTC):%H:%M:%S}  {line}")
    return line


def _text(output: Output, view: RolloutView) -> str:
    """Return the view as text for the terminal."""
    shares = ", ".join(f"{percent} % {revision}" for revision, percent in view.traffic if percent)
    facts = [("Steps", steps_line(view)), ("Traffic", f"{bar(view.candidate_percent)}  {shares}")]
    if view.waits_for:
        facts.append(("State", view.waits_for))
    facts += [("Judge", view.judge)] if view.judge else []
    lines = [title(view), *aligned(facts)]
    text = "".join(map(output.line_text, lines))
    rows = comparisons(view)
    return text + (output.table_text(HEADS, rows) if rows else "")


for _one in (status_command, watch_command):
    rollout_command.add_command(_one)
