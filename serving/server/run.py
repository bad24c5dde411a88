"""A server as the work of a process: until a signal asks it to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import uvloop

from serving.server.limits import Limits
from serving.server.options import ServerOptions
from serving.server.server import Server
from serving.server.sockets import Sockets
from serving.storage.artifact import Artifact


def run(options: ServerOptions, sockets: Sockets, artifact: Callable[[], Artifact] | None, imports: float) -> None:
    """Serve until SIGTERM or SIGINT, then drain. `artifact` blocks until the model's files are here (None: it is not
    known yet which), `imports`: ms that the start took so far.

    Raises KnodelError when the model cannot be loaded.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(options, sockets, artifact, imports))


async def _serve(
    options: ServerOptions, sockets: Sockets, artifact: Callable[[], Artifact] | None, imports: float
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = Server(options, sockets, Limits())
    if options.assignment is not None:  # a pool member's imports took nobody's time
        server.stats.startup.imports = imports
    await server.rehearse()
    await server.start()
    loading = asyncio.create_task(server.load(artifact))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()  # its thread ends with the process
    elif loading.exception() is not None:
        await server.close()  # who was held gets an answer
        loading.result()
    await stopping
    await server.drain()
    await server.close()
