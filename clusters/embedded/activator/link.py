"""The control plane's connection to the activator: it sends each revision's endpoints and receives queue depths.

It is one connection over a Unix socket, with the messages of `clusters.embedded.activator.wire`. The link remembers all
targets and sends them again after every reconnect, so a restarted activator has them within one round trip.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import Unavailable
from clusters.base.objects import Key
from clusters.embedded.activator.wire import (
    LINE_LIMIT,
    ActivatorTarget,
    Message,
    RevisionLoad,
    decode,
    encode,
    key_from_wire,
    loads_from_wire,
    target_to_wire,
)
from clusters.net import unix_sockets

log = logging.getLogger(__name__)

Callback = Callable[[Key], None]
"""Called with the revision whose number of waiting requests became zero, or more than zero."""

FIRST_BACKOFF = 0.02  # s; a restarted activator is back within 0.2 s
LARGEST_BACKOFF = 1.0  # s; the socket is local, a failed try costs nothing
_BACKOFF = Backoff(FIRST_BACKOFF, LARGEST_BACKOFF)
ACK_TIMEOUT = 5.0  # s; an activator that is alive answers within a millisecond
IDLE = RevisionLoad()


class ActivatorLink:
    """A connection to the activator that reconnects by itself and remembers its targets."""

    def __init__(self, socket_path: Path, clock: Clock) -> None:
        self._path = socket_path
        self._clock = clock
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._wanted: dict[Key, ActivatorTarget | None] = {}  # None: to be removed, until acknowledged
        self._pending: dict[int, Key] = {}  # message → its revision, until acknowledged
        self._latest: dict[Key, int] = {}  # the last message about a revision, until acknowledged
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._sequence = 0
        self._loads: dict[Key, RevisionLoad] = {}
        self._known: frozenset[Key] = frozenset()
        self._address = ""
        self._callbacks: list[Callback] = []

    @property
    def connected(self) -> bool:
        """Whether loads are current; without a connection they are the last ones received."""
        return self._connected.is_set()

    @property
    def address(self) -> str:
        """The `host:port` at which the activator accepts requests; empty before the first connection."""
        return self._address

    async def wait_connected(self) -> None:
        """Wait until the activator has answered the handshake."""
        await self._connected.wait()

    def load(self, key: Key) -> RevisionLoad:
        """Return the requests of this revision at the activator."""
        return self._loads.get(key, IDLE)

    @property
    def busy(self) -> bool:
        """Whether the activator has requests, by the last loads received."""
        return bool(self._loads)

    def subscribe(self, callback: Callback) -> None:
        """Call `callback` at once when a revision's queue becomes empty or non-empty."""
        self._callbacks.append(callback)

    async def refresh(self) -> bool:
        """Return whether `load` is current. Loads are pushed, so they are current while there is a connection."""
        return self.connected

    async def set_target(self, target: ActivatorTarget) -> None:
        """Apply `target`. After this, new requests go only to its endpoints.

        Raises Unavailable if the activator does not acknowledge in time; the target is sent again on reconnect.
        """
        if self._wanted.get(target.key) != target or target.key in self._latest:
            self._wanted[target.key] = target
            await self._request(target.key, {"set": target_to_wire(target)})

    async def remove_target(self, key: Key) -> None:
        """Remove a revision: requests that wait for it get 503. Raises Unavailable as `set_target` does."""
        self._wanted[key] = None
        await self._request(key, {"remove": list(key)})

    async def retain(self, keys: Iterable[Key]) -> None:
        """Remove all other revisions, after a new control plane has observed all revisions that exist.

        Raises Unavailable as `set_target` does, and while the activator is not connected.
        """
        if not self.connected:
            raise Unavailable(f"activator at {self._path} is not connected: its revisions are not known")
        kept = frozenset(keys)
        for key in self._known | frozenset(self._wanted):
            if key not in kept:
                await self.remove_target(key)

    async def run(self) -> None:
        """Connect, and reconnect after failures, until cancelled."""
        failures = 0
        while True:
            try:
                reader, writer = await unix_sockets.open_connection(self._path, LINE_LIMIT)
            except OSError as error:
                pause = _BACKOFF.delay(failures)
                log.debug("activator at %s does not answer (%s): retrying in %.2f s", self._path, error, pause)
                await self._clock.sleep(pause)
                failures += 1
                continue
            failures = 0
            await self._receive(reader, writer)
            await self._clock.sleep(FIRST_BACKOFF)

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._handle(decode(line), writer)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("connection to the activator at %s failed: %s", self._path, error)
        finally:
            self._writer = None
            self._connected.clear()
            writer.close()

    def _handle(self, message: Message, writer: asyncio.StreamWriter) -> None:
        if "hello" in message:
            self._start_session(message["hello"], writer)
            loads = loads_from_wire(message["loads"])
            self._set_loads({**dict.fromkeys(self._loads, IDLE), **loads})
        elif "loads" in message:
            self._set_loads(loads_from_wire(message["loads"]))
        elif "ack" in message:
            self._acknowledged(int(message["ack"]), message.get("error"))

    def _start_session(self, hello: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        self._address = str(hello["address"])
        self._known = frozenset(key_from_wire(pair) for pair in hello["targets"])
        self._writer = writer
        for key, target in self._wanted.items():
            message = {"remove": list(key)} if target is None else {"set": target_to_wire(target)}
            self._send(self._latest.get(key, 0), message)
        self._connected.set()

    async def _request(self, key: Key, message: Mapping[str, Any]) -> None:
        """Send a message about the revision, and wait for its acknowledgement. Raises Unavailable."""
        self._sequence += 1
        number = self._sequence
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[number] = waiter
        self._pending[number] = key
        self._latest[key] = number
        self._send(number, message)
        try:
            async with asyncio.timeout(ACK_TIMEOUT):
                await waiter
        except TimeoutError as error:
            raise Unavailable(
                f"activator at {self._path} did not acknowledge the endpoints of {key} within {ACK_TIMEOUT:.0f} s: "
                "check its process"
            ) from error
        finally:
            self._waiters.pop(number, None)

    def _send(self, number: int, message: Mapping[str, Any]) -> None:
        if self._writer is not None:
            self._writer.write(encode({**message, "id": number}))

    def _acknowledged(self, number: int, error: str | None) -> None:
        """Record an acknowledgement, which covers all earlier messages about the same revision."""
        key = self._pending.get(number)
        if key is None:
            return
        for earlier in [one for one, about in self._pending.items() if about == key and one <= number]:
            del self._pending[earlier]
            waiter = self._waiters.get(earlier)
            if waiter is None or waiter.done():
                continue
            if error:
                waiter.set_exception(Unavailable(f"activator at {self._path} refused: {error}"))
            else:
                waiter.set_result(None)
        if self._latest.get(key) == number:
            del self._latest[key]
            if self._wanted.get(key, IDLE) is None:
                del self._wanted[key]

    def _set_loads(self, loads: Mapping[Key, RevisionLoad]) -> None:
        for key, load in loads.items():
            before = self._loads.pop(key, IDLE)
            if load != IDLE:
                self._loads[key] = load
            if (before.queued == 0) != (load.queued == 0):
                for callback in self._callbacks:
                    callback(key)
