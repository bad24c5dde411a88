"""The activator's end of the control connection: takes targets, tells loads. The words are those of `wire`.

Any number of control planes may connect (there is one; after its death the next). Each is told the full state first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

from clusters.embedded.activator.report import LoadReport
from clusters.embedded.activator.throttler import Throttler
from clusters.embedded.activator.wire import (
    LINE_LIMIT,
    Load,
    Loads,
    Message,
    decode,
    encode,
    key_from_wire,
    loads_to_wire,
    target_from_wire,
)

log = logging.getLogger(__name__)

UNREAD_LIMIT = 1024 * 1024  # bytes; a control plane that reads none of its news is cut off and told all when it is back


class ControlServer:
    """Listens on a unix socket; `report` tells it of loads."""

    def __init__(self, throttler: Throttler, report: LoadReport, address: str) -> None:
        self._throttler = throttler
        self._report = report
        self._address = address
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        report.subscribe(self._push)

    async def start(self, sock: socket.socket) -> None:
        """Listen on the socket of `unix_sockets.listen`."""
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=LINE_LIMIT)

    def close(self) -> None:
        """Take no more orders."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        log.info("control plane connected")
        writer.write(encode(self._hello()))
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(encode(self._take(line)))
        except (OSError, ValueError) as error:  # ValueError: a line beyond LINE_LIMIT
            log.warning("control connection broke: %s", error)
        finally:
            self._writers.discard(writer)
            writer.close()
            log.info("control plane gone")

    def _hello(self) -> Message:
        keys = [list(key) for key in self._throttler]
        loads = {key: load for key in self._throttler if (load := self._throttler.load(key)) != Load()}
        return {
            "hello": {"pid": os.getpid(), "address": self._address, "targets": keys},
            "loads": loads_to_wire(loads),
        }

    def _take(self, line: bytes) -> Message:
        """Put an order in force; what cannot be is said in the answer."""
        number: Any = 0
        try:
            message = decode(line)
            number = message["id"]
            if "set" in message:
                self._throttler.set_target(target_from_wire(message["set"]))
            elif "remove" in message:
                self._throttler.remove_target(key_from_wire(message["remove"]))
            else:
                raise ValueError("neither set nor remove")
        except (ValueError, KeyError, TypeError) as error:
            log.warning("order not understood: %r", error)
            return {"ack": number, "error": f"order not understood: {error!r}"}
        return {"ack": number}

    def _push(self, loads: Loads) -> None:
        line = encode({"loads": loads_to_wire(loads)})
        for writer in list(self._writers):
            if writer.transport.get_write_buffer_size() > UNREAD_LIMIT:
                log.warning("the control plane does not read: connection cut")
                writer.transport.abort()
            else:
                writer.write(line)
