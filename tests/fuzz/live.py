"""A real server in a thread, and callers with plain sockets: for checks that are no coroutines."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.support import models

HOST = "127.0.0.1"
NAME = "m"
PATIENCE = 10.0  # s; a connection that does not end in this time is a failure
PIECE = 64 * 1024
HURRIED = ServerLimits(head_time=0.03, body_check=0.03, linger=0.01, keep_alive=0)
"""Seconds: whoever leaves something out is told at once, so that a check is over soon."""


def identity() -> bytes:
    """INT64 x [-1] → y, the same: it has an answer to whatever is taken."""
    shape = ["n"]
    return models.model(
        [models.node("Identity", ["x"], ["y"])],
        [models.value("x", models.INT64, shape)],
        [models.value("y", models.INT64, shape)],
    )


@contextmanager
def live_server(limits: ServerLimits = HURRIED) -> Iterator[int]:
    """The port of a server of `identity` under the name m."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="server", daemon=True)
    thread.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(identity())
            server, port = asyncio.run_coroutine_threadsafe(_started(path, limits), loop).result(PATIENCE)
            try:
                yield port
            finally:
                asyncio.run_coroutine_threadsafe(server.close(), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


def exchange(port: int, pieces: Sequence[bytes]) -> bytes:
    """All that comes back on a connection on which these pieces are sent, until the server ends it.

    Raises TimeoutError when it does not.
    """
    with socket.create_connection((HOST, port), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = bytearray()
        try:
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused meanwhile: what was said of it may still be there
        try:
            while data := connection.recv(PIECE):
                received += data
        except ConnectionResetError:
            pass
        return bytes(received)


async def _started(path: Path, limits: ServerLimits) -> tuple[ModelServer, int]:
    options = parse_options(["--name", NAME, "--storage-uri", path.as_uri()], {"HOST": HOST})
    sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
    server = ModelServer(options, sockets, limits)
    await server.start()
    await server.load()
    return server, int(sockets.data.getsockname()[1])
