"""EventSources tell whether anybody can send by them."""

from __future__ import annotations

from clusters.base.objects import EVENT_SOURCE, SECRET, condition_of
from tests.scenarios.world import World

SOURCE, NAME = "/training/keyless", "training-keyless"


async def test_an_event_source_says_that_its_key_is_there_and_that_it_is_gone(world: World) -> None:
    events, cluster = world.events, world.cluster
    assert events is not None

    async def reason() -> tuple[str, str]:
        ready = condition_of(await cluster.get(EVENT_SOURCE, NAME, world.namespace), "Ready") or {}
        return str(ready.get("status")), str(ready.get("reason"))

    async def has_key() -> bool:
        return await reason() == ("True", "Keys")

    async def lacks_key() -> bool:
        return await reason() == ("False", "SecretNotFound")

    async with events.allowed(cluster, SOURCE, "--models", "keyless", "--storage-prefix", "s3://models/"):
        await world.eventually(has_key)
        await cluster.delete(SECRET, f"{NAME}-key", world.namespace)
        await cluster.patch(EVENT_SOURCE, NAME, {"spec": {"createModels": True}}, world.namespace, manager="tests")
        await world.eventually(lacks_key)
        assert (
            "Secret training-keyless-key does not exist: `knodel events allow /training/keyless"
            in await events.knodel("events", "sources")
        )
