"""Outgoing ModelEvents: which are sent, their cause, and their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clusters.base.errors import Unavailable
from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, Key, Kind, Object
from eventing.objects.apis import ModelRef
from eventing.objects.model_event import make_model_event
from eventing.objects.outbox import PROMOTED
from eventing.objects.outgoing import make_outgoing
from tests.eventing.sink import ListedSink
from tests.eventing.test_emitter import TRACE, entry, world
from tests.eventing.world import NAMESPACE, START, event_source, event_spec
from tests.support.wait import eventually


async def test_nobody_sends_outcomes_in_the_name_of_a_model(tmp_path: Path) -> None:
    """Senders control the data of their events, and tenants may set labels on ModelEvents."""
    sink = ListedSink()
    out = {"knodel.dev/direction": "out"}
    made = make_outgoing(Key(NAMESPACE, "magika"), entry(1, PROMOTED), None, START)
    came = make_model_event(NAMESPACE, event_spec(1, data=made["spec"]["data"]))
    strangers = {**made, "spec": {**made["spec"], "model": {"namespace": "others", "name": "magika"}}}
    other = make_outgoing(Key(NAMESPACE, "other"), entry(2, PROMOTED), None, START)
    speaks = {**other, "spec": {**other["spec"], "data": made["spec"]["data"]}}
    async with world(tmp_path, sink) as at:
        for forged in (came, strangers, speaks):
            labels = {**forged["metadata"]["labels"], **out}
            obj = {**forged, "metadata": {**forged["metadata"], "labels": labels}}
            await at.cluster.create(MODEL_EVENT, obj, manager="tests")

        async def refused() -> bool:
            return [one.get("status", {}).get("phase") for one in await at.events()] == ["Failed"] * 3

        await eventually(refused)
    assert sink.tries == []


async def test_none_is_kept_while_an_older_one_is_not(tmp_path: Path) -> None:
    sink = ListedSink()
    async with world(tmp_path, sink) as at:
        create, failures = at.cluster.create, [Unavailable("away")]

        async def failing(kind: Kind, obj: Object, **options: Any) -> Object:
            if kind == MODEL_EVENT and failures and obj["spec"]["id"] == "e2":
                assert not {"e3", "e4"} & (await at.phases()).keys()
                raise failures.pop()
            return await create(kind, obj, **options)

        at.cluster.create = failing  # type: ignore[method-assign]
        at.cluster.create_all = None  # type: ignore[assignment, method-assign]
        await at.put(entry(1), entry(2), entry(3), entry(4))
        await at.becomes(e1="Applied", e2="Applied", e3="Applied", e4="Applied")
    assert (sink.ids, failures) == (["e1", "e2", "e3", "e4"], [])


async def test_the_cause_is_an_event_for_this_model_and_one_that_can_be_read(tmp_path: Path) -> None:
    sink = ListedSink()
    async with world(tmp_path, sink) as at:
        for namespace in ("a", "b"):
            source = event_source()
            metadata = {**source["metadata"], "namespace": namespace}
            await at.cluster.create(EVENT_SOURCE, {**source, "metadata": metadata}, manager="tests")
        others = event_spec(1, correlationid="of-others", model=ModelRef("a", "magika"))
        await at.cluster.create(MODEL_EVENT, make_model_event("a", others), manager="tests")
        mine = event_spec(1, correlationid="mine", traceparent=TRACE)
        await at.cluster.create(MODEL_EVENT, make_model_event("b", mine), manager="tests")
        odd = make_model_event(NAMESPACE, event_spec(2))
        await at.cluster.create(MODEL_EVENT, {**odd, "spec": {**odd["spec"], "time": "never"}}, manager="tests")
        await eventually(lambda: len(at.informers[MODEL_EVENT]) == 3)
        await at.put(*(entry(n, causationid=str(n), causationsource=mine.source) for n in (1, 2)))
        await at.becomes(e1="Applied", e2="Applied")
    assert [one["correlationid"] for one in sink.sent] == ["mine", "2"]
