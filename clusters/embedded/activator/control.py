"""The activator's side of the control connection: it applies targets and reports loads, as messages of `wire`.

Any number of control planes may connect. There is one, or its successor. Each receives the full state first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from clusters.base.objects import Key
from clusters.embedded.activator.throttler import Throttler
from clusters.embedded.activator.wire import (
    LINE_LIMIT,
    Loads,
    Message,
    RevisionLoad,
    decode,
    encode,
    key_from_wire,
    loads_to_wire,
    target_from_wire,
)
from clusters.net import unix_sockets

log = logging.getLogger(__name__)

UNREAD_LIMIT = 1024 * 1024  # bytes; a control plane that does not read is disconnected, and gets all loads on reconnect
REPORT_INTERVAL = 0.05  # s; at most 20 reports a second at any request rate, and none while loads do not change

IDLE = RevisionLoad()


class LoadReporter:
    """Report changed loads to subscribers, gathered for `REPORT_INTERVAL`.

    The first request in a queue is reported at once, above all for a revision without endpoints, which it activates.
    """

    def __init__(self) -> None:
        self._reported: dict[Key, RevisionLoad] = {}
        self._changed: set[Key] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._subscribers: list[Callable[[Loads], None]] = []
        self._load: Callable[[Key], RevisionLoad] = lambda _: IDLE
        self._has_endpoints: Callable[[Key], bool] = lambda _: True

    def observe(self, load: Callable[[Key], RevisionLoad], has_endpoints: Callable[[Key], bool]) -> None:
        """Set the functions that return the state of a revision."""
        self._load = load
        self._has_endpoints = has_endpoints

    def subscribe(self, subscriber: Callable[[Loads], None]) -> None:
        """Call `subscriber` with changed loads."""
        self._subscribers.append(subscriber)

    def changed(self, key: Key) -> None:
        """Record that the load of the revision changed."""
        load = self._load(key)
        begins = load.queued > 0 and self._reported.get(key, IDLE).queued == 0
        if begins and (self._timer is None or not self._has_endpoints(key)):
            self._report({key: load})
        self._changed.add(key)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REPORT_INTERVAL, self._flush)

    def _flush(self) -> None:
        self._timer = None
        loads = {key: self._load(key) for key in self._changed}
        self._changed.clear()
        fresh = {key: load for key, load in loads.items() if load != self._reported.get(key, IDLE)}
        if fresh:
            self._report(fresh)

    def _report(self, loads: Loads) -> None:
        for key, load in loads.items():
            if load == IDLE:
                self._reported.pop(key, None)
            else:
                self._reported[key] = load
        for subscriber in self._subscribers:
            subscriber(loads)


class ControlServer:
    """A server on a Unix socket that applies targets to `throttler` and sends the loads of `reporter`.

    `address` is the `host:port` at which the activator accepts requests.
    """

    def __init__(self, throttler: Throttler, reporter: LoadReporter, address: str) -> None:
        self._throttler = throttler
        self._address = address
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        reporter.subscribe(self._push)

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a socket of `unix_sockets.listen`."""
        self._server = await unix_sockets.serve(sock, self._serve, LINE_LIMIT)

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        log.info("control plane connected")
        keys = [list(key) for key in self._throttler]
        loads = {key: load for key in self._throttler if (load := self._throttler.load(key)) != IDLE}
        hello = {"pid": os.getpid(), "address": self._address, "targets": keys}
        writer.write(encode({"hello": hello, "loads": loads_to_wire(loads)}))
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(encode(self._handle(line)))
        except (OSError, ValueError) as error:  # ValueError: a line beyond LINE_LIMIT
            log.warning("control connection failed: %s", error)
        finally:
            self._writers.discard(writer)
            writer.close()
            log.info("control plane disconnected")

    def _handle(self, line: bytes) -> Message:
        """Apply a message and return the acknowledgement, which has the error if there is one."""
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
            log.warning("invalid message of the control plane: %r", error)
            return {"ack": number, "error": f"invalid message: {error!r}"}
        return {"ack": number}

    def _push(self, loads: Loads) -> None:
        line = encode({"loads": loads_to_wire(loads)})
        for writer in list(self._writers):
            if writer.transport.get_write_buffer_size() > UNREAD_LIMIT:
                log.warning("the control plane does not read: closing its connection")
                writer.transport.abort()
            else:
                writer.write(line)
