"""Records each accepted event as a ModelEvent before its sender gets a response; duplicates share one ModelEvent.

The ledger is as durable as the cluster's store: on disk (fsync) when embedded, in etcd on Kubernetes. The name of a
ModelEvent is derived from source and id, so several webhooks agree on which duplicate came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, ClusterError, Forbidden, NotFound, Unavailable
from clusters.base.objects import MODEL_EVENT, Object, name_of, namespace_of
from eventing.objects.apis import MANAGER
from eventing.objects.model_event import LARGEST_DATA, EventSpec, make_model_event
from eventing.objects.ports import NewEvent, RecordResult

TICK = timedelta(microseconds=1)
"""Minimum time between the arrivals of two events: arrival is the last criterion of their order, so it is unique."""
AT_ONCE: Final = 32
"""Maximum number of originals of duplicates that are read concurrently."""


class ModelEventLedger:
    """`ports.EventLedger` over a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last = datetime.min.replace(tzinfo=UTC)

    async def record(self, entries: Sequence[NewEvent]) -> Sequence[RecordResult | ClusterError]:
        """Store the events durably; return the result for each, in order."""
        objects = []
        for entry in entries:
            self._last = max(entry.received_at, self._last + TICK)
            objects.append(make_model_event(entry.event_source.namespace, _spec(entry, self._last)))
        created = await self._cluster.create_all(MODEL_EVENT, objects, manager=MANAGER)
        if not any(isinstance(one, ClusterError) for one in created):
            return [RecordResult.NEW] * len(created)
        limit = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(self._result(*one, limit) for one in zip(objects, created, strict=True)))

    async def _result(
        self, obj: Object, created: Object | ClusterError, limit: asyncio.Semaphore
    ) -> RecordResult | ClusterError:
        if not isinstance(created, AlreadyExists):
            return created if isinstance(created, ClusterError) else RecordResult.NEW
        try:
            async with limit:
                original = await self._cluster.get(MODEL_EVENT, name_of(obj), namespace_of(obj))
        except NotFound as error:
            return Unavailable(f"{error}: its original was deleted meanwhile")
        except Forbidden:
            return RecordResult.DUPLICATE  # its original cannot be compared
        except ClusterError as error:
            return error
        return _compared(original, obj)


def _spec(entry: NewEvent, received_at: datetime) -> EventSpec:
    event, mapped = entry.event, entry.mapped
    # A mapped event may belong to another source, in which the sequence of its own source has no meaning.
    ordered = event.extensions if mapped.source == event.source else {}
    return EventSpec(
        event_source=entry.event_source.name,
        source=mapped.source,
        id=mapped.id,
        type=event.type,
        received_at=received_at,
        time=mapped.time,
        sequence=ordered.get("sequence", ""),
        sequencetype=ordered.get("sequencetype", ""),
        subject=event.subject,
        traceparent=event.extensions.get("traceparent", ""),
        correlationid=event.extensions.get("correlationid", ""),
        model=mapped.model,
        change=mapped.change,
        metrics=_unless_too_large(dict(mapped.metrics) or None),
        data=_unless_too_large(event.data),
        ignored=mapped.ignored,
    )


def _unless_too_large(value: Any) -> Any:
    """Return the data or metrics, None if they are too large: users read them, but only the change has an effect."""
    return value if value is None or len(msgspec.json.encode(value)) <= LARGEST_DATA else None


def _compared(original: Object, duplicate: Object) -> RecordResult:
    """Return CONFLICT if the id was used for something else, because such an event would have no effect."""
    if any(original["spec"].get(field) != duplicate["spec"].get(field) for field in ("model", "change")):
        return RecordResult.CONFLICT
    failed = (original.get("status") or {}).get("phase") == "Failed"
    return RecordResult.DUPLICATE_OF_FAILED if failed else RecordResult.DUPLICATE
