"""Events as they come from senders that do not know what became of the first copy."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from datetime import UTC, datetime
from functools import partial

import aiohttp
import pytest

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, MODEL_EVENT, Object, generation_of, name_of
from eventing.auth.signing import sign
from eventing.emit import TYPE
from tests.scenarios.events import Events
from tests.scenarios.world import World

NAME, SOURCE = "echoed", "/training/echoed"
COPIES = 100


def training(source: str, **data: str) -> Object:
    """The event of one that ended, under an id of its own: a cluster remembers those of earlier tests."""
    return {"specversion": "1.0", "id": f"run-{uuid.uuid4().hex[:8]}", "source": source, "type": TYPE, "data": data}


async def post(session: aiohttp.ClientSession, events: Events, key: str, event: Object) -> tuple[int, str]:
    """Status, and what the webhook says of it."""
    body = json.dumps(event).encode()
    headers = {"content-type": "application/cloudevents+json", **sign(key, "msg-1", datetime.now(UTC), body)}
    async with session.post(events.webhook, data=body, headers=headers) as answer:
        return answer.status, answer.headers.get("knodel-event", "")


@pytest.mark.fault("E1")
async def test_an_event_that_is_sent_a_hundred_times_at_once_is_taken_a_hundred_times_and_makes_one_revision(
    world: World,
) -> None:
    events = world.events
    assert events is not None
    await world.deploy(NAME, storageUri=world.artifacts("double"), version="1")
    triple = world.artifacts("triple")
    event = training(SOURCE, model=NAME, storageUri=triple, version="2")
    granted = ("--models", NAME, "--storage-prefix", triple.rpartition("/")[0] + "/")
    async with (
        events.allowed(world.cluster, SOURCE, *granted) as key,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):

        async def is_known() -> bool:
            """What is no event is told so to those alone who may send."""
            return (await post(session, events, key, {**event, "specversion": "0.1"}))[0] == 400

        await world.eventually(is_known)
        answers = await asyncio.gather(*(post(session, events, key, event) for _ in range(COPIES)))
        ready = await world.ready(NAME, generation=2)
        late = await post(session, events, key, event)

    assert Counter(answers) == {(202, "taken"): 1, (202, "copy"): COPIES - 1}
    assert late == (202, "copy")
    assert generation_of(ready) == 2
    assert ready["spec"]["version"] == "2"
    assert sorted(map(name_of, await world.revisions(NAME))) == [f"{NAME}-00001", f"{NAME}-00002"]
    assert (await world.ask(NAME)).revision == f"{NAME}-00002"


async def test_an_event_makes_a_model_once_its_source_may_and_none_when_the_source_is_gone(world: World) -> None:
    events, cluster, source, name = world.events, world.cluster, "/training/born", "born"
    assert events is not None
    uri = world.artifacts("double")
    granted = ("--models", "*", "--storage-prefix", uri.rpartition("/")[0] + "/")
    first, other = (training(source, model=model, storageUri=uri) for model in (name, "never-born"))

    async def failed(event: Object) -> Object | None:
        for found in (await cluster.list(MODEL_EVENT, world.namespace)).items:
            if found["spec"]["id"] == event["id"] and (found.get("status") or {}).get("phase") == "Failed":
                return found
        return None

    async with events.allowed(cluster, source, *granted) as key, aiohttp.ClientSession() as session:
        for event in (first, other):

            async def is_taken(event: Object = event) -> bool:
                return (await post(session, events, key, event))[0] == 202

            await world.eventually(is_taken)
            await world.eventually(partial(failed, event))
        async with events.allowed(cluster, source, *granted, "--create-models"):
            await events.knodel("events", "replay", first["id"])
            try:
                await world.ready(name)
                assert (await world.ask(name)).revision == f"{name}-00001"
            finally:
                await cluster.delete(MODEL, name, world.namespace)
    before = await failed(other)
    await events.knodel("events", "replay", other["id"])

    async def failed_again() -> bool:
        found = await failed(other)
        return bool(before and found and found["status"]["at"] > before["status"]["at"])

    await world.eventually(failed_again)
    with pytest.raises(NotFound):
        await cluster.get(MODEL, "never-born", world.namespace)
