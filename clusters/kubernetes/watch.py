"""A watch that resumes after its last event whenever it ends, breaks, becomes silent or receives invalid data.

The watch of the official client resumes once and then raises, does not detect a dead socket, and cannot start after a
given event (kubernetes-client/python issues 728 and 2223). The rules are those of client-go's reflector:

1. The server ends every watch after `Timeouts.watch`. A watch without data for longer is dead.
2. An invalid line may have been a change, so the watch is resumed after the last valid event.
3. If the server no longer has a version, in whichever form it reports that, the watch raises Gone and the caller lists
   again.
4. A healthy server sends a bookmark before it ends a quiet watch. Without one, the server may be behind our version,
   for example after a restored backup, and would never send an event. So its current version is checked.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from clusters.base.api import WatchEvent
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import Gone, KnodelError, Unavailable
from clusters.kubernetes.errors import translate
from clusters.kubernetes.status import status_of
from clusters.kubernetes.transport import ApiRequest, Timeouts, Transport

log = logging.getLogger(__name__)

MOST_INVALID_STREAMS = 3
"""Consecutive streams with invalid data at the same version after which the watch raises Gone."""
FAILURES_WORTH_A_WARNING = 5
"""Consecutive failures; a restart of the API server causes fewer."""
LARGEST_LINE = 32 * 1024 * 1024
"""Bytes of one line: etcd stores objects of up to 1.5 MiB, whose JSON is at worst a few times larger."""
FROM_THE_START = ("", "0")
"""Versions that request all objects first, in any order, so a watch cannot resume from their events."""


class _Line(msgspec.Struct):
    """A line of a watch. Its object is not validated."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: dict[str, Any]


def _version(line: _Line) -> str:
    """Return the version of an event. Raises ValidationError for an object without metadata of the API."""
    metadata = line.object.get("metadata")
    if not isinstance(metadata, dict):
        raise msgspec.ValidationError("an object without metadata")
    version = metadata.get("resourceVersion")
    if not (isinstance(version, str) and version.isdecimal()):
        raise msgspec.ValidationError("an object without metadata.resourceVersion")
    if line.type != "BOOKMARK" and not metadata.get("name"):
        raise msgspec.ValidationError("an object without metadata.name")
    return version


class InvalidEvent(Unavailable):
    """The server sent data that is not an event."""


class ResumingWatch:
    """The changes of one collection after `version`, for as long as a caller iterates over `events`."""

    def __init__(
        self, transport: Transport, request: ApiRequest, version: str, clock: Clock, timeouts: Timeouts
    ) -> None:
        self._transport = transport
        self._request = request
        self._version = version
        self._clock = clock
        self._timeouts = timeouts
        self._backoff = Backoff(timeouts.first_backoff, timeouts.largest_backoff)
        self._decoder = msgspec.json.Decoder(_Line)
        self._failures = 0
        self._invalid_streams = 0
        self._received = False

    async def events(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield the changes in order. Raises Gone, and Invalid, Forbidden, NotFound for a refused watch."""
        while True:
            began = self._clock.monotonic()
            self._received = False
            trouble = None
            try:
                async with aclosing(self._stream()) as stream:
                    async for event in stream:
                        yield event
                if not self._received:
                    await self._check_version()
            except Unavailable as error:
                trouble = error
            if self._version in FROM_THE_START:
                raise Gone(f"{self._request.what} ended before the initial objects were complete: list again")
            if self._received:
                self._failures = 0
            if trouble is not None or self._clock.monotonic() - began < self._timeouts.first_backoff:
                await self._pause(trouble)

    async def _stream(self) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events of one connection. Raises the error that ended it; returns when the server ended it."""
        lines = Lines()
        async with self._transport.stream(self._next_request()) as response:
            async for chunk in response.content.iter_any():
                try:
                    for line in lines.feed(chunk):
                        event = self._event(self._decoder.decode(line))
                        yield event
                except (msgspec.MsgspecError, LineTooLong) as exc:
                    raise self._invalid(exc) from exc

    def _event(self, line: _Line) -> WatchEvent:
        if line.type == "ERROR":
            raise translate(self._request.what, status_of(line.object))
        version = _version(line)
        if self._version not in FROM_THE_START or line.type == "BOOKMARK":
            self._version = version
        self._invalid_streams = 0
        self._received = True
        return WatchEvent(line.type, line.object)

    async def _check_version(self) -> None:
        """Raise Gone when the version of the server is older than that of this watch."""
        if self._version in FROM_THE_START:
            return
        query = {**self._request.query, "limit": "1"}
        answer = await self._transport.call(ApiRequest("GET", self._request.path, self._request.what, query))
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        present = str((metadata or {}).get("resourceVersion") or "")
        if present.isdecimal() and int(present) < int(self._version):
            raise Gone(f"{self._request.what}: the cluster was reset to {present}, before {self._version}: list again")

    def _next_request(self) -> ApiRequest:
        query = {
            **self._request.query,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._timeouts.watch))),
        }
        if self._version:
            query["resourceVersion"] = self._version
        return ApiRequest("GET", self._request.path, self._request.what, query)

    def _invalid(self, exc: Exception) -> Exception:
        self._invalid_streams += 1
        if self._invalid_streams >= MOST_INVALID_STREAMS:
            self._invalid_streams = 0
            return Gone(f"{self._request.what}: invalid data {MOST_INVALID_STREAMS} times in a row ({exc}): list again")
        return InvalidEvent(f"{self._request.what}: the server sent an invalid event ({exc})")

    async def _pause(self, trouble: Unavailable | None) -> None:
        wait = self._transport.lengthened(self._backoff.delay(self._failures))
        self._failures += 1
        if trouble is not None:
            wait = max(wait, trouble.retry_after or 0.0)
            level = logging.WARNING if self._failures >= FAILURES_WORTH_A_WARNING else logging.INFO
            log.log(level, "%s broke at %s (%s): again in %.1f s", self._request.what, self._version, trouble, wait)
        await self._clock.sleep(wait)


class LineTooLong(KnodelError):
    """A line exceeds the limit, so the input is not a stream of lines."""


class Lines:
    """A splitter of a byte stream into lines, whatever the chunks. It scans every byte once."""

    def __init__(self, largest: int = LARGEST_LINE) -> None:
        self._largest = largest
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that `chunk` completes, without line ends and empty lines. Raises LineTooLong."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if self._rest:
                line = b"".join((*self._rest, line))
                self._rest.clear()
                self._size = 0
            if line and not line.isspace():
                yield line
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
        if self._size > self._largest:
            raise LineTooLong(f"a line of more than {self._largest} bytes")
