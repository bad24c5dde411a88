"""The way of a body that goes on at once: which pieces are written, which have to wait, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from clusters.net.upstream import UpstreamConnection, UpstreamError
from tests.support.wait import eventually

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[UpstreamConnection]:
    """Connect to a server that sends a head and then what `answer` writes; yield after the head."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        await answer(writer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, connection = await asyncio.get_running_loop().create_connection(UpstreamConnection, "127.0.0.1", port)
        connection.send(b"GET / HTTP/1.1\r\n\r\n", head_only=False)
        assert (await connection.response())[0] == 200
        yield connection
        connection.close()


async def test_pieces_are_written_as_they_arrive() -> None:
    written: list[bytes] = []

    async def answer(writer: asyncio.StreamWriter) -> None:
        for number in range(3):
            writer.write(chunk(b"%d" % number))
            await eventually(lambda: len(written) > number)  # noqa: B023 - called before the next number
        writer.write(chunk(b"last") + END)

    def write_now(data: bytes) -> bool:
        written.append(data)
        return True

    async with answering(answer) as connection:
        await connection.forward(write_now)
        assert written == [b"0", b"1", b"2", b"last"]
        assert await connection.read() == b""


@pytest.mark.parametrize("ends", [True, False])
async def test_a_piece_that_has_to_wait_is_read_next(ends: bool) -> None:
    written: list[bytes] = []

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(chunk(b"first"))
        await eventually(lambda: written == [b"first"])
        writer.write(chunk(b"second") + (END if ends else b""))

    def write_now(data: bytes) -> bool:
        if not written:
            written.append(data)
        return data in written

    async with answering(answer) as connection:
        await connection.forward(write_now)
        assert await connection.read() == b"second"


async def test_a_body_that_breaks_off_is_an_error_after_its_last_piece() -> None:
    written: list[bytes] = []

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(chunk(b"only"))

    def write_now(data: bytes) -> bool:
        written.append(data)
        return True

    async with answering(answer) as connection:
        with pytest.raises(UpstreamError, match="closed the connection before"):
            await connection.forward(write_now)
    assert written == [b"only"]
