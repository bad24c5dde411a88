"""`knodel events list`, `show` and `replay`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

import click

from clusters.base.objects import MODEL_EVENT, Object, name_of, namespace_of
from eventing.objects.apis import Phase
from serving.cli.base.output import Output
from serving.cli.context import Session, all_namespaces_option, verb
from serving.cli.events.lookup import (
    DIRECTIONS,
    arrival_of,
    find_event,
    list_events,
    selector_of,
)
from serving.cli.listing import Listing, show_list, watch_option
from serving.cli.names import events, models
from serving.client.errors import UsageError
from serving.client.models.model_events import model_of, replay, spec_of, status_of
from serving.control_api.table import age_of

HEADS = ("age", "model", "type", "id", "source", "phase", "message")
SHOWN = {
    "Id": "id",
    "Source": "source",
    "Type": "type",
    "Time": "time",
    "Sequence": "sequence",
    "Subject": "subject",
    "Received": "receivedAt",
    "By": "eventSource",
    "Trace": "traceparent",
}
"""Fields of the spec that `show` prints, by label."""
source_option = click.option(
    "--source", default="", metavar="SOURCE", help="Source of the event, if several have this id."
)


@verb(
    "list",
    examples=[
        ("List the events of a model", "knodel events list --model iris"),
        ("List the events that failed", "knodel events list --phase Failed"),
        ("Show events as they arrive", "knodel events list --watch"),
    ],
)
@all_namespaces_option
@click.option("--model", default="", metavar="NAME", shell_complete=models, help="List only events of this model.")
@click.option(
    "--phase", "phases", multiple=True, type=click.Choice(get_args(Phase)), help="List only events in this phase."
)
@click.option("--direction", type=click.Choice(list(DIRECTIONS)), default="in", show_default=True,
              help="Received events, sent events, or both.")  # fmt: skip
@watch_option
def list_command(
    session: Session, all_namespaces: bool, model: str, phases: tuple[str, ...], direction: str, watch: bool
) -> None:
    """List events, oldest first."""
    listing = Listing(
        MODEL_EVENT,
        HEADS,
        _row,
        selector=selector_of(direction, model),
        order=arrival_of,
        shown=lambda event: not phases or status_of(event)["phase"] in phases,
        optional=("source", "type", "age"),
        generic=True,
    )
    show_list(session, listing, None if all_namespaces else session.namespace, watch=watch)


@verb("show", examples=[("Show an event by its id", "knodel events show train-42")])
@click.argument("id", shell_complete=events)
@source_option
def show_command(session: Session, id: str, source: str) -> None:
    """Show the event ID with its outcome."""
    event = find_event(session.client(), session.namespace, id, source)
    if session.output.structured:
        session.output.value(event)
        return
    _show(session.output, event)


@verb(
    "replay",
    examples=[
        ("Process an event again", "knodel events replay train-42"),
        ("Process every failed event of a model again", "knodel events replay --failed --model iris"),
    ],
)
@click.argument("ids", nargs=-1, metavar="[ID]…", shell_complete=events)
@source_option
@click.option("--failed", is_flag=True, help="Replay all events that failed.")
@click.option(
    "--model", default="", metavar="NAME", shell_complete=models, help="With --failed: only events of this model."
)
def replay_command(session: Session, ids: tuple[str, ...], source: str, failed: bool, model: str) -> None:
    """Process the events ID again. Received events are applied, outgoing ones are sent."""
    if bool(ids) == failed:
        raise UsageError("no events are selected: give either their IDs, or --failed")
    client = session.client()
    if failed:
        found = [
            one for one in list_events(client, session.namespace, "all", model) if status_of(one)["phase"] == "Failed"
        ]
    else:
        found = [find_event(client, session.namespace, one, source) for one in ids]
    done = [client.call(replay, one) for one in found]
    if session.output.structured:
        session.output.value(list_of(done))
        return
    for one in done:
        session.output.text(f"event {spec_of(one).get('id')} is processed again")
    if not done:
        session.output.text("no event has failed")


def list_of(objects: list[Object]) -> Object:
    """Return a List object."""
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _row(event: Object, now: datetime) -> list[object]:
    spec, status = spec_of(event), status_of(event)
    return [
        age_of(event, now),
        model_of(event),
        spec.get("type", ""),
        spec.get("id", ""),
        spec.get("source", ""),
        status["phase"],
        status.get("message", "") or spec.get("ignored", ""),
    ]


def _show(output: Output, event: Object) -> None:
    spec, status = spec_of(event), status_of(event)
    output.text(f"{'Name:':<11}{name_of(event)} (namespace {namespace_of(event)})")
    for word, field in SHOWN.items():
        if spec.get(field):
            output.text(f"{word + ':':<11}{spec[field]}")
    output.text(f"{'Model:':<11}{model_of(event) or 'none'}")
    _members(output, "Change", spec.get("change"))
    _members(output, "Metrics", spec.get("metrics"))
    tries = f", after {status['attempts']} failed attempts" if status.get("attempts") else ""
    output.text(f"{'Phase:':<11}{status['phase']}{tries}")
    for word, field in (("Since", "at"), ("Next try", "retryAt"), ("Message", "message")):
        if status.get(field):
            output.text(f"{word + ':':<11}{status[field]}")


def _members(output: Output, title: str, members: Any) -> None:
    if isinstance(members, Mapping) and members:
        output.text(f"{title}:")
        for name, value in members.items():
            output.text(f"  {name} {value}")
