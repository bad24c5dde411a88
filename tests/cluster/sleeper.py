"""The program of a container that is ready at once and answers each request after the milliseconds that it names.

It runs in the model server's image by `python -c`, so it stands on the standard library alone. `GET /?ms=500` answers
200 with the host's name 500 ms later. As every good container it goes on answering for a while after SIGTERM.
Variables: PORT; CRASH, with any value ends it at once with that message.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

STATS_PORT = 9095  # where our model server answers /stats
DRAIN = 2.0  # s


class Busy:
    """Requests under way, and their integral over time."""

    def __init__(self) -> None:
        self.now = 0
        self.requests = 0
        self._seconds = 0.0
        self._changed = time.monotonic()

    def change(self, by: int) -> None:
        """So many more, or fewer."""
        self._seconds = self.seconds()
        self._changed = time.monotonic()
        self.now += by
        self.requests += by < 0

    def seconds(self) -> float:
        """Request-seconds so far."""
        return self._seconds + self.now * (time.monotonic() - self._changed)


async def main() -> None:
    """Serve until SIGTERM and a moment more."""
    busy, ending = Busy(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(length[0].split(":")[1]) if length else 0)
                url = urlsplit(head.split(" ", 2)[1])
                writer.write(await respond(url.path, parse_qs(url.query)))
                await writer.drain()
        writer.close()

    async def respond(path: str, query: dict[str, list[str]]) -> bytes:
        if path == "/stats":
            page = {"busySeconds": busy.seconds(), "requests": busy.requests, "active": busy.now}
            return response(json.dumps(page))
        if path != "/healthz":
            busy.change(+1)
            try:
                await asyncio.sleep(float(query.get("ms", ["0"])[0]) / 1000)
            finally:
                busy.change(-1)
        return response(socket.gethostname())

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    for port in (int(os.environ.get("PORT", "8080")), STATS_PORT):
        await asyncio.start_server(answer, "0.0.0.0", port, backlog=1_000)
    await ending.wait()
    await asyncio.sleep(DRAIN)


def response(body: str) -> bytes:
    """A whole answer."""
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


if __name__ == "__main__":
    if "CRASH" in os.environ:
        Path("/dev/termination-log").write_text(os.environ["CRASH"])
        sys.exit(1)
    asyncio.run(main())
