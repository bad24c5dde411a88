"""The fields of ModelEvents, and the operation that replays one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusters.base.objects import MODEL_EVENT, Object, name_of, namespace_of, parse_timestamp
from eventing.objects.apis import ANNOTATION_REPLAY
from serving.client.api import ApiCalls
from serving.client.effects import Call

TICK: Final = timedelta(microseconds=1)


def replay(api: ApiCalls, event: Object) -> Call[Object]:
    """Request a replay with a time after that of the current phase, even if the local clock is behind.

    Return the ModelEvent. Raises NotFound, Conflict, ClientError.
    """
    now, reached = datetime.now(UTC), status_of(event).get("at")
    since = max(now, parse_timestamp(reached) + TICK) if reached else now
    annotations = {ANNOTATION_REPLAY: since.isoformat(timespec="microseconds").replace("+00:00", "Z")}
    patch = {"metadata": {"annotations": annotations}}
    return (yield from api.merge(MODEL_EVENT, name_of(event), namespace_of(event), patch))


def spec_of(event: Object) -> dict[str, Any]:
    """Return the spec of the event; empty if it is missing or not an object."""
    spec = event.get("spec")
    return spec if isinstance(spec, dict) else {}


def status_of(event: Object) -> dict[str, Any]:
    """Return the status of the event; phase Accepted if it is missing."""
    status = event.get("status")
    return {"phase": "Accepted", **(status if isinstance(status, dict) else {})}


def model_of(event: Object) -> str:
    """Return `NAMESPACE/NAME` of its Model; empty for none."""
    model = spec_of(event).get("model")
    return f"{model.get('namespace', '')}/{model.get('name', '')}" if isinstance(model, dict) else ""
