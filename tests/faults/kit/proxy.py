"""A TCP proxy that a test scripts: what passes through it comes late, slowly, in small pieces, is lost, or is cut off.

async with Proxy(("127.0.0.1", port)) as proxy:
    proxy.script = Script(delay=0.2)      # counts for what arrives from now on
    ... connect to 127.0.0.1:proxy.port ...
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from typing import Final

PIECE: Final = 65_536
"""Bytes read at a time."""
PENDING: Final = 64
"""Pieces on the way in one direction, at most: then the sender has to wait, as on a full line."""
NO_LINGER: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: a close is a reset (socket(7))."""


@dataclass(frozen=True, slots=True)
class Script:
    """What becomes of bytes, in both directions.

    `delay`: seconds from a piece's arrival until it is passed on. `rate`: bytes a second, 0 for as many as come.
    `piece`: bytes that are passed on at a time, each in a packet of its own. `silent`: what arrives is thrown away, an
    end as well, so that both sockets stay half open. `reset_after`: so many bytes of a connection's answer are passed
    on, then both its ends see a reset; `cut_after`: so many bytes of its request. None: never.
    """

    delay: float = 0.0
    rate: float = 0.0
    piece: int = PIECE
    silent: bool = False
    reset_after: int | None = None
    cut_after: int | None = None


PLAIN: Final = Script()


class Cut(ConnectionError):
    """The script says that the connection ends here."""


class Proxy:
    """Listens on `port` of 127.0.0.1 and connects to `target` for each connection; `connections` counts them."""

    def __init__(self, target: tuple[str, int], script: Script = PLAIN) -> None:
        self.target = target
        self.script = script
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reset(self) -> None:
        """End every connection that is open now, by a reset to both ends; others may come."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # where it was cancelled before it began, too

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_Direction(self, reader, far_writer, of_answer=False).run())
                group.create_task(_Direction(self, far_reader, writer, of_answer=True).run())
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            for one in writers:
                _reset(one)
        finally:
            for one in writers:
                one.close()


class _Direction:
    """What goes one way through one connection."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, of_answer: bool
    ) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._of_answer = of_answer
        self._passed = 0
        self._pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(PENDING)

    async def run(self) -> None:
        """Pass on until the end of the stream, and the end itself. Raises ConnectionError where it is broken off."""
        _send_at_once(self._writer)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._write())

    async def _read(self) -> None:
        loop, content = asyncio.get_running_loop(), b"x"
        while content:
            content = await self._reader.read(PIECE)
            if self._proxy.script.silent:
                await self._hush(content)
            else:
                await self._pending.put((loop.time() + self._proxy.script.delay, content))

    async def _hush(self, content: bytes) -> None:
        """Nothing is passed on; of an end, nobody hears either until the connection is reset."""
        if not content:
            await asyncio.Event().wait()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, content = await self._pending.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not content:
                with contextlib.suppress(OSError):  # the reader of it has left already
                    self._writer.write_eof()
                return
            await self._pass_on(content)

    async def _pass_on(self, content: bytes) -> None:
        while content:
            script = self._proxy.script
            part, content = content[: script.piece], content[script.piece :]
            last = script.reset_after if self._of_answer else script.cut_after
            if last is not None and self._passed + len(part) >= last:
                self._writer.write(part[: max(0, last - self._passed)])
                await asyncio.sleep(0)  # it is with the kernel before the reset is
                raise Cut
            self._writer.write(part)
            self._passed += len(part)
            await self._writer.drain()
            await asyncio.sleep(len(part) / script.rate if script.rate else 0)


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()
