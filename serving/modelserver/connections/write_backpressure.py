"""Answers that callers do not take: memory that nobody lent, and a server that cannot end.

A connection is watched from the moment on when the kernel does not take all of an answer at once. Who takes less than
`ServerLimits.body_rate` from then on is cut off; what all of them have not taken is counted in `ListenerState`.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from typing import Final

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.connections.write_backpressure import ListenerState

_INT: Final = bytes(4)
_DROP: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: closing drops what the kernel still has, and tells the other side by a reset (`socket(7)`)."""


class WriteBackpressure:
    """What one connection has written and its caller has not taken."""

    def __init__(self, transport: asyncio.Transport, limits: ServerLimits, traffic: ListenerState) -> None:
        self._transport = transport
        self._limits = limits
        self._traffic = traffic
        self._counted = 0
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Something is left. Nothing is written until `end`, so that it only becomes less."""
        self._left = self._size()
        self._watch()

    def end(self) -> None:
        """Nothing is left, or nobody to take it."""
        self._count(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._count(self._transport.get_write_buffer_size())
        self._timer = asyncio.get_running_loop().call_later(self._limits.answer_check, self._look)

    def _look(self) -> None:
        before, self._left = self._left, self._size()
        if before - self._left < min(before, self._limits.body_rate * self._limits.answer_check):
            reset_connection(self._transport)
        else:
            self._watch()

    def _size(self) -> int:
        return self._transport.get_write_buffer_size() + _in_kernel(self._transport)

    def _count(self, size: int) -> None:
        self._traffic.untaken += size - self._counted
        self._counted = size


def reset_connection(transport: asyncio.Transport) -> None:
    """End a connection that is there, and what is left of its answers; nobody takes a part for the whole."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
    transport.abort()


def _in_kernel(transport: asyncio.Transport) -> int:
    """Bytes that the kernel has and the other side did not acknowledge (`tcp(7)`: SIOCOUTQ); 0 where it cannot tell.

    It takes them in large steps, seconds apart for a slow caller; the other side takes them all the time.
    """
    try:
        number = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, _INT)
    except (OSError, ValueError):
        return 0
    return int.from_bytes(number, sys.byteorder)
