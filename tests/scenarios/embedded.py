"""The scenarios' platform on one machine: everything of `knodel up`, in this process's loop."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from serving.platform.platform import Platform
from serving.types.settings.settings import load_settings
from tests.eventing.scripted_receiver import Receiver, receiver
from tests.scenarios.events import Events
from tests.scenarios.world import World
from tests.support import models
from tests.support.ports import free_ports


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """A platform with its state and its artifacts in `folder`."""
    with receiver(202) as sink:
        async with _world(folder, sink) as made:
            yield made


@asynccontextmanager
async def _world(folder: Path, sink: Receiver) -> AsyncIterator[World]:
    port, control, tls = free_ports(3)
    variables = {"KNODEL_CONTROL_TLS_PORT": str(tls), "KNODEL_EVENTS_SINK": sink.url}
    settings = load_settings(None, variables, gateway_port=port, control_port=control)
    state, artifacts = folder / "state", folder / "artifacts"
    state.mkdir()

    @asynccontextmanager
    async def told() -> AsyncIterator[Receiver]:
        yield sink

    events = Events(f"http://127.0.0.1:{control}/events", artifacts, {"KNODEL_STATE": str(state)}, (), "default", told)
    platform, stop = Platform(state, settings), asyncio.Event()
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
        events=events,
        openai=f"http://127.0.0.1:{port}/openai/v1",
        forget_downloads=lambda: shutil.rmtree(state / "artifacts", ignore_errors=True),
    )
    yield made
    await made.close()
    stop.set()
    await running
