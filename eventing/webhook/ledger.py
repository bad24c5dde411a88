"""The ledger: every accepted event is a ModelEvent before its sender hears so, and there is one for all copies of it.

It is as durable as the cluster's store: on disk (fsync) when embedded, in etcd on Kubernetes. Its name is made of
source and id, so that several webhooks at once agree on which copy came first.
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
from eventing.objects.model_event import LARGEST_DATA, Spec, make_model_event
from eventing.objects.ports import NewEvent, Recorded

TICK = timedelta(microseconds=1)
"""Between the arrivals of two events: the order of arrival is the last of the order's rules, and must be one."""
AT_ONCE: Final = 32
"""Originals of copies that are read together."""


class ModelEventLedger:
    """`ports.Ledger` over a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last = datetime.min.replace(tzinfo=UTC)

    async def record(self, entries: Sequence[NewEvent]) -> Sequence[Recorded | ClusterError]:
        """Keep them, durable when it returns; says of each, in order, whether it is new, or why it is not kept."""
        objects = [self._object(entry) for entry in entries]
        answers = await self._cluster.create_all(MODEL_EVENT, objects, manager=MANAGER)
        if not any(isinstance(answer, ClusterError) for answer in answers):
            return [Recorded.TAKEN] * len(answers)
        turns = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(self._recorded(*one, turns) for one in zip(objects, answers, strict=True)))

    async def _recorded(
        self, obj: Object, answer: Object | ClusterError, turns: asyncio.Semaphore
    ) -> Recorded | ClusterError:
        if not isinstance(answer, AlreadyExists):
            return answer if isinstance(answer, ClusterError) else Recorded.TAKEN
        try:
            async with turns:
                original = await self._cluster.get(MODEL_EVENT, name_of(obj), namespace_of(obj))
        except NotFound as error:
            return Unavailable(f"{error}: it was forgotten in this moment")
        except Forbidden:
            return Recorded.COPY  # of what, we are not told
        except ClusterError as error:
            return error
        return _compared(original, obj)

    def _object(self, entry: NewEvent) -> Object:
        self._last = max(entry.received_at, self._last + TICK)
        return make_model_event(entry.event_source.namespace, _spec(entry, self._last))


def _spec(entry: NewEvent, received_at: datetime) -> Spec:
    event, mapped = entry.event, entry.mapped
    ordered = event.extensions if mapped.source == event.source else {}  # else its effect is one of several sources
    return Spec(
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
        metrics=_kept(dict(mapped.metrics) or None),
        data=_kept(event.data),
        ignored=mapped.ignored,
    )


def _kept(data: Any) -> Any:
    """Data or metrics unless they are too large: they are for people, the change is what data were mapped to."""
    return data if data is None or len(msgspec.json.encode(data)) <= LARGEST_DATA else None


def _compared(original: Object, copy: Object) -> Recorded:
    """Who uses an id again for something else is told so: that would have no effect."""
    if any(original["spec"].get(field) != copy["spec"].get(field) for field in ("model", "change")):
        return Recorded.OTHER
    failed = (original.get("status") or {}).get("phase") == "Failed"
    return Recorded.COPY_OF_FAILED if failed else Recorded.COPY
