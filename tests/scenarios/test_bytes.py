"""A version is its bytes: a store that changes them under their name gives them to no later replica."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler

import pytest

from autoscaler.apis import HELD_ANNOTATION
from clusters.objects import POD_AUTOSCALER, Object, annotations_of
from serving.storage.digest import of_bytes
from tests.scenarios.test_scaling import at_zero
from tests.scenarios.world import World
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


async def values(world: World, requests: int) -> list[float]:
    """What so many requests at once are answered."""
    answers = await asyncio.gather(*(world.ask(NAME) for _ in range(requests)))
    return [answer.body["outputs"][0]["data"][0] for answer in answers]


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
        held = asyncio.create_task(values(world, 3))
        await world.until(NAME, names_both)
        assert not held.done()

        Store.content = double
        assert await held == [2.0] * 3
