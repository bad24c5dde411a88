"""ModelEvents by what people know of them: the id that the sender gave, or the object's name."""

from __future__ import annotations

import re
from typing import Any, Final

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL_EVENT, Object, name_of
from eventing.objects.apis import LABEL_DIRECTION, LABEL_MODEL
from eventing.objects.model_event import event_name
from eventing.objects.outgoing import OUT
from serving.cli.base.errors import NoSuchThing, UsageError
from serving.cli.client.client import Client

NAME: Final = re.compile(r"[eo]-[0-9a-f]{40}")
DIRECTIONS: Final = {"in": f"{LABEL_DIRECTION}!={OUT}", "out": f"{LABEL_DIRECTION}={OUT}", "all": ""}
"""Events that came, events of our own, both: label selectors."""


def list_events(client: Client, namespace: str | None, direction: str, model: str = "") -> list[Object]:
    """Those of a namespace (None: all), oldest first."""
    selector = ",".join(filter(None, (DIRECTIONS[direction], f"{LABEL_MODEL}={model}" if model else "")))
    return sorted(client.list(MODEL_EVENT, namespace, selector)["items"], key=_arrival)


def find_event(client: Client, namespace: str, id: str, source: str = "") -> Object:
    """The event that is meant by `id`, its own or its object's name. Raises NoSuchThing, UsageError for several."""
    found = _found(client, namespace, id, source)
    if not found:
        of_source = f" of {source}" if source else ""
        raise NoSuchThing(
            f"there is no event {id}{of_source} in namespace {namespace}: `knodel events list` shows what is kept"
        )
    if len(found) > 1:
        told = ", ".join(f"{spec_of(one).get('source')} ({name_of(one)})" for one in found[:5])
        raise UsageError(f"{len(found)} events have the id {id}: {told}; name one with --source, or by its own name")
    return found[0]


def spec_of(event: Object) -> dict[str, Any]:
    """Its spec, empty for what has none."""
    spec = event.get("spec")
    return spec if isinstance(spec, dict) else {}


def status_of(event: Object) -> dict[str, Any]:
    """Its status; one that is absent means Accepted."""
    status = event.get("status")
    return {"phase": "Accepted", **(status if isinstance(status, dict) else {})}


def model_of(event: Object) -> str:
    """`NAMESPACE/NAME` of its Model, empty for none."""
    model = spec_of(event).get("model")
    return f"{model.get('namespace', '')}/{model.get('name', '')}" if isinstance(model, dict) else ""


def _found(client: Client, namespace: str, id: str, source: str) -> list[Object]:
    name = id if NAME.fullmatch(id) else event_name(source, id) if source else ""
    if not name:
        return [one for one in list_events(client, namespace, "all") if spec_of(one).get("id") == id]
    try:
        return [client.get(MODEL_EVENT, name, namespace)]
    except NotFound:
        return []


def _arrival(event: Object) -> tuple[str, str]:
    spec = spec_of(event)
    return str(spec.get("receivedAt", "")), str(spec.get("sequence", ""))
