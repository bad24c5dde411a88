"""Bound response data that slow clients have not read, and cut such clients off on shutdown.

A connection is watched from the moment when the kernel does not accept all of a response at once. A client that reads
less than `ConnectionLimits.body_rate` from then on is disconnected. `ListenerState` counts the unread bytes of all
connections.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from typing import Final

from clusters.net.server.limits import ConnectionLimits

_INT: Final = bytes(4)
_DROP: Final = struct.pack("ii", 1, 0)
"""Value of SO_LINGER: `close` drops unsent data and sends a reset (`socket(7)`)."""


class ListenerState:
    """State that all connections of a listener share.

    - `draining`: whether each response is the last one on its connection
    - `requests`: number of requests so far
    - `unread`: bytes of responses that clients have not read
    """

    def __init__(self) -> None:
        self.draining = False
        self.requests = 0
        self.unread = 0


class WriteBackpressure:
    """Watches how fast the client of one connection reads, while written data is pending."""

    def __init__(self, transport: asyncio.Transport, limits: ConnectionLimits, state: ListenerState) -> None:
        self._transport = transport
        self._limits = limits
        self._state = state
        self._counted = 0
        self._pending = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the pending data. Nothing more is written before `stop`, so it can only shrink."""
        self._pending = self._size()
        self._schedule()

    def stop(self) -> None:
        """Stop watching: the data was read, or the connection is lost."""
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._count(self._transport.get_write_buffer_size())
        self._timer = asyncio.get_running_loop().call_later(self._limits.response_check, self._check)

    def _check(self) -> None:
        before, self._pending = self._pending, self._size()
        if before - self._pending < min(before, self._limits.body_rate * self._limits.response_check):
            reset_connection(self._transport)
        else:
            self._schedule()

    def _size(self) -> int:
        """Return the number of bytes that the client has not acknowledged, in the process and in the kernel.

        The kernel accepts data in large steps, seconds apart for a slow client, while the client acknowledges all the
        time (`tcp(7)`: SIOCOUTQ). Without SIOCOUTQ, bytes in the kernel count as 0.
        """
        try:
            number = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, _INT)
        except (OSError, ValueError):
            number = _INT
        return self._transport.get_write_buffer_size() + int.from_bytes(number, sys.byteorder)

    def _count(self, size: int) -> None:
        self._state.unread += size - self._counted
        self._counted = size


def reset_connection(transport: asyncio.Transport) -> None:
    """Close an open connection with a reset, so that the client cannot mistake a part of a response for all of it."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
    transport.abort()
