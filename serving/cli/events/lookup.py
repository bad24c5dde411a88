"""Find ModelEvents by the sender's event id, or by the name of the object."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL_EVENT, Object, name_of
from eventing.objects.apis import LABEL_DIRECTION, LABEL_MODEL
from eventing.objects.model_event import event_name
from eventing.objects.outgoing import OUT
from serving.client.client import Client
from serving.client.errors import DoesNotExist, UsageError
from serving.client.models.model_events import spec_of

NAME: Final = re.compile(r"[eo]-[0-9a-f]{40}")
DIRECTIONS: Final = {"in": f"{LABEL_DIRECTION}!={OUT}", "out": f"{LABEL_DIRECTION}={OUT}", "all": ""}
"""Label selectors for received events, sent events, and both."""


def list_events(client: Client, namespace: str | None, direction: str, model: str = "") -> list[Object]:
    """Return the events of a namespace (None: of all), oldest first."""
    return sorted(client.list(MODEL_EVENT, namespace, selector_of(direction, model))["items"], key=arrival_of)


def selector_of(direction: str, model: str = "") -> str:
    """Return the label selector for events of this direction, of one model if it is given."""
    return ",".join(filter(None, (DIRECTIONS[direction], f"{LABEL_MODEL}={model}" if model else "")))


def arrival_of(event: Object) -> tuple[str, str]:
    """Return the time of arrival and the sequence of an event, by which events are sorted."""
    spec = spec_of(event)
    return str(spec.get("receivedAt", "")), str(spec.get("sequence", ""))


def find_event(client: Client, namespace: str, id: str, source: str = "") -> Object:
    """Return the event with this id or object name. Raises DoesNotExist, and UsageError if several have the id."""
    name = id if NAME.fullmatch(id) else event_name(source, id) if source else ""
    if not name:
        found = [one for one in list_events(client, namespace, "all") if spec_of(one).get("id") == id]
    else:
        found = []
        with suppress(NotFound):
            found = [client.get(MODEL_EVENT, name, namespace)]
    if not found:
        of_source = f" of {source}" if source else ""
        raise DoesNotExist(
            f"event {id}{of_source} not found in namespace {namespace}: `knodel events list` lists the stored events"
        )
    if len(found) > 1:
        listed = ", ".join(f"{spec_of(one).get('source')} ({name_of(one)})" for one in found[:5])
        raise UsageError(
            f"{len(found)} events have the id {id}, {listed}: select one with --source, or by its object name"
        )
    return found[0]
