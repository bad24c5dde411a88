"""What a user sees while a first replica brings its model."""

from __future__ import annotations

import asyncio

from clusters.base.objects import Object, condition_of
from tests.scenarios.world import World, reason_of
from tests.support import models
from tests.support.halves import in_halves


async def test_how_far_a_download_is_stands_in_the_status_until_the_model_is_ready(world: World) -> None:
    content, rest = models.double(), asyncio.Event()
    half = len(content) // 2

    async with await asyncio.start_server(in_halves(content, rest), world.address, 0) as store:
        port = store.sockets[0].getsockname()[1]
        uri = f"http://{world.address}:{port}/model.onnx"
        await world.deploy("dripping", wait=False, storageUri=uri, minReplicas=1)
        told = await world.until("dripping", lambda found: "downloading" in reason_of(found))
        rest.set()
        await world.ready("dripping")
        served = await world.until("dripping", has_format)

    sentence = f"dripping-00001: downloading {half} bytes of {len(content)} bytes ({100 * half // len(content)} %)"
    assert reason_of(told).endswith(sentence)
    assert served["status"]["modelFormat"] == "onnx"
    assert "message" not in (condition_of(served, "Ready") or {})


def has_format(model: Object) -> bool:
    return "modelFormat" in model["status"]
