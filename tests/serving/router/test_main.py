"""The router as a process, from its options to its end."""

from __future__ import annotations

import contextlib
from pathlib import Path

import aiohttp
import pytest

from clusters.base.objects import MODEL
from clusters.embedded.cluster import EmbeddedCluster
from serving.platform.router_main import main
from tests.serving.router.stage import model
from tests.support.api import api_server
from tests.support.ports import free_port
from tests.support.replicas import replica, until_ready
from tests.support.wait import eventually


async def test_a_replica_follows_the_models_without_the_api_server_and_ends_when_asked(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await cluster.create(MODEL, model("m", modelFormat="gguf"), manager="test")
    port = free_port()
    module = "serving.platform.router_main"

    async def listed() -> list[str]:
        async with session.get(f"http://127.0.0.1:{port}/openai/v1/models") as response:
            return [one["id"] for one in (await response.json())["data"]]

    async def has_both() -> bool:
        return await listed() == ["m", "n"]

    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        async with api_server(cluster, tmp_path) as kubeconfig:
            started = replica(module, ["--kubeconfig", str(kubeconfig)], tmp_path, PORT=str(port))
            running = await stack.enter_async_context(started)
            await until_ready(running)
            assert await listed() == ["m"]
            await cluster.create(MODEL, model("n", modelFormat="vllm"), manager="test")
            await eventually(has_both)
        assert await listed() == ["m", "n"], "the API server is gone"
        assert await running.ready()
        assert (await running.metrics())['knodel_router_requests_total{status="200"}'] >= 3
        await session.close()
        assert await running.end() == 0


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"PORT": port}) == 2
    assert "PORT=" in capsys.readouterr().err
