"""The platform that the scenarios run on: `--cluster embedded`; the same scenarios will take `--cluster kubernetes`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from serving.apis.settings import load_settings
from serving.platform import Platform
from tests.scenarios.world import World
from tests.support import models


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All scenarios share one loop, as they share one platform, which must not stand still between two of them."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="package"), append=False)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One platform for all scenarios; each uses Models of its own names."""
    artifacts = tmp_path_factory.mktemp("artifacts")
    port, control, tls = free_ports(3)
    environment = {"KNODEL_CONTROL_TLS_PORT": str(tls)}
    settings = load_settings(None, environment, gateway_port=port, control_port=control)
    platform = Platform(tmp_path_factory.mktemp("state"), settings)
    stop = asyncio.Event()
    running = asyncio.create_task(platform.run(stop))
    ready = asyncio.create_task(platform.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if not ready.done():
        await running
    made = World(
        platform.cluster,
        f"http://127.0.0.1:{port}",
        settings.gateway.domain,
        lambda name: models.write(artifacts, name).as_uri(),
    )
    yield made
    await made.close()
    stop.set()
    await running


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
