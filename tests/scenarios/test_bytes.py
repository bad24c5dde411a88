"""A version is its bytes: a store that changes them under their name gives them to no later replica."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler

import pytest

from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION
from clusters.base.objects import (
    CONFIG_MAP,
    EVENT,
    LABEL_REVISION,
    POD,
    POD_AUTOSCALER,
    Key,
    Object,
    annotations_of,
    is_deleting,
    key_of,
    uid_of,
)
from serving.storage.base.digest import of_bytes
from tests.scenarios.answers import Answer
from tests.scenarios.test_scaling import at_zero
from tests.scenarios.world import MANAGER, World
from tests.support import models
from tests.support.http_servers import served_by

NAME, REVISION = "swapped", "swapped-00001"


class Store(BaseHTTPRequestHandler):
    """One file, whose bytes may change at any moment."""

    content = b""

    def do_GET(self) -> None:
        """Answer with the bytes of now."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads a line for each download."""


async def asks(world: World, requests: int) -> list[Answer]:
    """Return the answers to so many requests at once."""
    return await asyncio.gather(*(world.ask(NAME) for _ in range(requests)))


def value_of(answer: Answer) -> float:
    """Return the value in an answer of the model."""
    return float(answer.body["outputs"][0]["data"][0])


async def values(world: World, requests: int) -> list[float]:
    """Return the values in the answers to so many requests at once."""
    return [value_of(answer) for answer in await asks(world, requests)]


async def is_held(world: World) -> bool:
    """Whether later replicas are held to what the first one loaded."""
    found = await world.cluster.get(POD_AUTOSCALER, REVISION, world.namespace)
    return HELD_ANNOTATION in annotations_of(found)


@pytest.mark.fault("M1")
async def test_bytes_that_change_after_the_first_replica_are_served_by_no_later_one(world: World) -> None:
    double, triple = models.double(), models.triple()

    def names_both(found: Object) -> bool:
        text = json.dumps((found.get("status") or {}).get("conditions"))
        return of_bytes(double) in text and of_bytes(triple) in text

    Store.content = double
    with served_by(Store, world.address) as base:
        await world.deploy(NAME, storageUri=f"{base}/model.onnx", minReplicas=1)
        await world.eventually(lambda: is_held(world))

        Store.content = triple
        world.forget_downloads()
        await world.deploy(NAME, minReplicas=3, wait=False)
        refused = await world.until(NAME, names_both)
        assert refused["status"]["replicas"]["ready"] == 1
        assert set(await values(world, 30)) == {2.0}

        await world.deploy(NAME, minReplicas=0, scaleToZeroAfter="1s", wait=False)
        await at_zero(world, REVISION)
        await world.until(NAME, lambda found: not names_both(found))
        held = asyncio.create_task(asks(world, 3))
        await world.until(NAME, names_both)

        Store.content = double
        for answer in await held:  # held until a replica has the first bytes, or refused while none can start
            assert answer.status == 503 or value_of(answer) == 2.0

        async def is_back() -> bool:
            [answer] = await asks(world, 1)
            return answer.status == 200 and value_of(answer) == 2.0

        await world.eventually(is_back)


async def pods_of(world: World, revision: str) -> set[Key]:
    """Return the Pods of the revision that stay."""
    found = (await world.cluster.list(POD, world.namespace, f"{LABEL_REVISION}={revision}")).items
    return {key_of(pod) for pod in found if not is_deleting(pod)}


async def block_record(world: World, model: Object) -> str:
    """Have the platform's record of the Model's digests refused; return the name of the ConfigMap that does it."""
    name = f"knodel-digests-{uid_of(model)}"
    blocked = {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "data": {}}
    metadata = {"name": name, "namespace": world.namespace}
    await world.cluster.create(CONFIG_MAP, {**blocked, "metadata": metadata}, manager=MANAGER)
    return name


@pytest.mark.fault("M1")
@pytest.mark.timeout(300)
async def test_a_replica_that_starts_before_the_record_is_mounted_serves_no_other_bytes(world: World) -> None:
    double, triple = models.double(), models.triple()
    name, revision = "unmounted", "unmounted-00001"
    shown = [of_bytes(content)[: len("sha256:") + 12] for content in (double, triple)]

    async def loaded() -> bool:
        found = await world.cluster.list(POD_AUTOSCALER, world.namespace, f"{LABEL_REVISION}={revision}")
        return any(LOADED_ANNOTATION in annotations_of(one) for one in found.items)

    async def ask() -> float:
        answer = await world.ask(name)
        return float(answer.body["outputs"][0]["data"][0])

    async def serves() -> bool:
        return (await world.ask(name)).status == 200

    async def refusals() -> list[str]:
        events = (await world.cluster.list(EVENT, world.namespace)).items
        found = [one for one in events if one.get("reason") == "DigestMismatch"]
        return [one["message"] for one in found if one["involvedObject"]["name"] == revision]

    def names_both(found: Object) -> bool:
        text = json.dumps((found.get("status") or {}).get("conditions"))
        return all(digest in text for digest in shown)

    Store.content = double
    with served_by(Store, world.address) as base:
        made = await world.deploy(name, storageUri=f"{base}/model.onnx", minReplicas=1, wait=False)
        blocked = await block_record(world, made)
        await world.eventually(loaded)
        await world.eventually(serves)
        assert await ask() == 2.0

        Store.content = triple
        world.forget_downloads()
        [first] = await pods_of(world, revision)
        await world.cluster.delete(POD, first.name, first.namespace)
        await world.until(name, names_both)
        [second] = await pods_of(world, revision)
        assert second != first
        held = asyncio.create_task(ask())
        await asyncio.sleep(2.0)  # without a confirmation, the replica takes no request however long one waits
        assert not held.done()
        assert not await refusals()  # a new Pod would have no record either

        await world.cluster.delete(CONFIG_MAP, blocked, world.namespace)
        await world.deploy(name, scaleTarget=3, wait=False)  # the next pass writes the record
        [message] = await world.eventually(refusals)
        assert second.name in message and all(digest in message for digest in shown)
        assert f"`knodel deploy {name} --version LABEL`" in message
        Store.content = double
        assert await held == 2.0
        assert second not in await pods_of(world, revision)
