"""A watch that lasts: opened again where it stood whenever it ends, breaks, falls silent or turns to garbage.

The client's own watch resumes once and then raises, never notices a dead socket, and cannot be told from which event to
go on (kubernetes-client/python issues 728 and 2223). Rules, as in client-go's reflector:

1. The server is asked to end every watch after `Timeouts.watch`; one that says nothing for longer is dead.
2. A line that cannot be read may have been a change: the stream is left and opened again after the last good event.
3. A version that the server no longer has is told as Gone, whichever way it says so: the caller lists again.
4. A healthy server sends a bookmark before it ends a quiet watch. One that did not may stand behind our version, set
   back by a restored backup: it would be silent for ever. So its version is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from clusters.base.api import WatchEvent
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import Gone, Unavailable
from clusters.kubernetes.errors import translate
from clusters.kubernetes.lines import Lines, LineTooLong
from clusters.kubernetes.status import status_of
from clusters.kubernetes.timeouts import Timeouts
from clusters.kubernetes.transport import Request, Transport

log = logging.getLogger(__name__)

GARBAGE_IN_A_ROW = 3
"""Streams that end in garbage at the same version before the caller is told to list again."""
FAILURES_WORTH_A_WARNING = 5
"""In a row: a restart of the API server costs fewer."""
FROM_THE_START = ("", "0")
"""Versions that ask for the present objects first, in any order: no event of theirs is a place to go on from."""


class _Line(msgspec.Struct):
    """One line of a watch; its object is not interpreted."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: dict[str, Any]


def _version(line: _Line) -> str:
    """The place after this event. Raises ValidationError for what is no object of the API."""
    metadata = line.object.get("metadata")
    if not isinstance(metadata, dict):
        raise msgspec.ValidationError("an object without metadata")
    version = metadata.get("resourceVersion")
    if not (isinstance(version, str) and version.isdecimal()):
        raise msgspec.ValidationError("an object without metadata.resourceVersion")
    if line.type != "BOOKMARK" and not metadata.get("name"):
        raise msgspec.ValidationError("an object without metadata.name")
    return version


class Garbage(Unavailable):
    """What came is no event."""


class Watch:
    """Changes of one collection after `version`, for as long as somebody iterates over `events`."""

    def __init__(self, transport: Transport, request: Request, version: str, clock: Clock, timeouts: Timeouts) -> None:
        self._transport = transport
        self._request = request
        self._version = version
        self._clock = clock
        self._timeouts = timeouts
        self._backoff = Backoff(timeouts.first_backoff, timeouts.largest_backoff)
        self._decoder = msgspec.json.Decoder(_Line)
        self._failures = 0
        self._garbage = 0
        self._heard = False

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """The changes, in order. Raises Gone; Invalid, Forbidden, NotFound when the server refuses the watch."""
        while True:
            began = self._clock.monotonic()
            self._heard = False
            trouble = None
            try:
                async with aclosing(self._stream()) as stream:
                    async for event in stream:
                        yield event
                if not self._heard:
                    await self._check_version()
            except Unavailable as error:
                trouble = error
            if self._version in FROM_THE_START:
                raise Gone(f"{self._request.what} ended before it told all that was there: list again")
            if self._heard:
                self._failures = 0
            if trouble is not None or self._clock.monotonic() - began < self._timeouts.first_backoff:
                await self._pause(trouble)

    async def _stream(self) -> AsyncGenerator[WatchEvent, None]:
        """The events of one connection; raises what ended it, nothing when the server ended it in order."""
        lines = Lines()
        async with self._transport.stream(self._next_request()) as response:
            async for chunk in response.content.iter_any():
                try:
                    for line in lines.feed(chunk):
                        event = self._event(self._decoder.decode(line))
                        yield event
                except (msgspec.MsgspecError, LineTooLong) as exc:
                    raise self._garbled(exc) from exc

    def _event(self, line: _Line) -> WatchEvent:
        if line.type == "ERROR":
            raise translate(self._request.what, status_of(line.object))
        version = _version(line)
        if self._version not in FROM_THE_START or line.type == "BOOKMARK":
            self._version = version
        self._garbage = 0
        self._heard = True
        return WatchEvent(line.type, line.object)

    async def _check_version(self) -> None:
        """Raise Gone when the server stands behind the version that this watch goes on from."""
        if self._version in FROM_THE_START:
            return
        query = {**self._request.query, "limit": "1"}
        answer = await self._transport.call(Request("GET", self._request.path, self._request.what, query))
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        present = str((metadata or {}).get("resourceVersion") or "")
        if present.isdecimal() and int(present) < int(self._version):
            raise Gone(f"{self._request.what}: the cluster is back at {present}, before {self._version}: list again")

    def _next_request(self) -> Request:
        query = {
            **self._request.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._timeouts.watch))),
        }
        if self._version:
            query["resourceVersion"] = self._version
        return Request("GET", self._request.path, self._request.what, query)

    def _garbled(self, exc: Exception) -> Exception:
        self._garbage += 1
        if self._garbage >= GARBAGE_IN_A_ROW:
            self._garbage = 0
            return Gone(f"{self._request.what}: garbage {GARBAGE_IN_A_ROW} times in a row ({exc}): list again")
        return Garbage(f"{self._request.what}: the server sent what is no event ({exc})")

    async def _pause(self, trouble: Unavailable | None) -> None:
        wait = self._transport.lengthened(self._backoff.delay(self._failures))
        self._failures += 1
        if trouble is not None:
            wait = max(wait, trouble.retry_after or 0.0)
            level = logging.WARNING if self._failures >= FAILURES_WORTH_A_WARNING else logging.INFO
            log.log(level, "%s broke at %s (%s): again in %.1f s", self._request.what, self._version, trouble, wait)
        await self._clock.sleep(wait)
