"""Run a server in this process until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Final

import uvloop

from serving.modelserver.base.errors import DeviceLost
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import ServerOptions
from serving.modelserver.base.stats import StartupTimes
from serving.modelserver.connections.sockets import Sockets
from serving.modelserver.execution.lifecycle import DEVICE_LOST
from serving.modelserver.server import ModelServer
from serving.storage.base.artifact import Artifact

FAILED_WITHIN: Final = 1.0  # s; slow clients must not delay the report of a failed load
LOST_WITHIN: Final = 10.0  # s from the loss of the accelerator to the exit; waiting requests cannot succeed


def run(
    options: ServerOptions, sockets: Sockets, artifact: Callable[[], Artifact] | None, startup: StartupTimes,
    on_ready: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT, then drain.

    `artifact` blocks until the model's files are fetched; None when the model is not known yet. `startup` has the times
    of the start so far. `on_ready` is called when the model is loaded.

    Raises KnodelError when the model cannot be loaded, or the accelerator is lost.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, sockets, artifact, startup, on_ready))


async def _serve(
    options: ServerOptions, sockets: Sockets, artifact: Callable[[], Artifact] | None, startup: StartupTimes,
    on_ready: Callable[[], None],
) -> None:  # fmt: skip
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = ModelServer(options, sockets, ServerLimits(hosts=options.hosts), startup)
    await server.prewarm()
    await server.start()
    loading = asyncio.create_task(server.load(artifact))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        await asyncio.wait((loading,), timeout=server.stop_grace)
    if not loading.done():
        loading.cancel()  # its thread ends with the process
    elif loading.exception() is not None:
        await server.close(FAILED_WITHIN)  # waiting requests get a response
        loading.result()
    else:
        on_ready()
    lost = asyncio.create_task(server.device_lost())
    await asyncio.wait((stopping, lost), return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        await server.drain()
        await server.close()
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOST_WITHIN):
            await server.drain()
            await server.close(FAILED_WITHIN)
    raise DeviceLost(DEVICE_LOST)
