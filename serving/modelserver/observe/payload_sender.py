"""Sends payload events to a URL from a thread of its own.

Whoever offers an event never waits: what does not fit into the queue is dropped and counted.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from serving.modelserver.base.limits import MEBIBYTE
from serving.modelserver.base.observability_options import PayloadSink
from serving.modelserver.observe.payload_event import PayloadEvent

log = logging.getLogger(__name__)

MOST_EVENTS: Final = 1000  # that wait
MOST_BYTES: Final = 64 * MEBIBYTE  # of events that wait, the one on its way included: one of the largest requests
PATIENCE: Final = 10.0  # s for a step of one delivery
LOG_EVERY: Final = 60.0  # s between two lines about failures
LARGEST_ANSWER: Final = 64 * 1024  # bytes that are read so that the connection can be used again


@dataclass(slots=True)
class Counts:
    """What became of events so far."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


class PayloadSender:
    """Delivers to `target`, in order, each event once, or twice when the connection broke behind it.

    `monotonic` gives seconds.
    """

    def __init__(self, target: PayloadSink, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._monotonic = monotonic
        self._connection: http.client.HTTPConnection | None = None  # of the thread
        self._waiting: deque[PayloadEvent] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._silent_until = 0.0
        self._thread: threading.Thread | None = None
        self.counts = Counts()

    def offer(self, event: PayloadEvent) -> None:
        """Send it some time."""
        with self._changed:
            if self._closing or len(self._waiting) >= MOST_EVENTS or self._bytes + event.size > MOST_BYTES:
                self.counts.dropped += 1
                return
            self._waiting.append(event)
            self._bytes += event.size
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="payload-log", daemon=True)
                self._thread.start()

    def drop(self) -> None:
        """Count an event that cannot be made."""
        with self._changed:
            self.counts.dropped += 1

    def close(self, patience: float) -> None:
        """Take no more; blocks until all is sent, at most `patience` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(patience)
        if self._waiting:
            log.warning("payload log: %s did not take %d events in time", self._target.host, len(self._waiting))

    def _work(self) -> None:
        while (event := self._next()) is not None:
            reason = self._deliver(event)
            with self._changed:
                self._bytes -= event.size
                if reason:
                    self.counts.failed += 1
                else:
                    self.counts.sent += 1
            if reason:
                self._tell(reason)
        self._end()

    def _next(self) -> PayloadEvent | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            return self._waiting.popleft()

    def _deliver(self, event: PayloadEvent) -> str:
        """Why it could not be delivered, "" when it was."""
        kept = self._connection
        try:
            return self._post(event, kept or _connect(self._target))
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a header that is none
            self._end()
            if kept is None or not isinstance(error, ConnectionError):
                return str(error) or type(error).__name__
        return self._deliver(event)  # nearly always the other side had ended the kept connection and read nothing

    def _post(self, event: PayloadEvent, connection: http.client.HTTPConnection) -> str:
        self._connection = connection
        headers = {**event.headers, "content-length": str(event.size)}
        connection.request("POST", self._target.path, iter(event.body), headers)
        response = connection.getresponse()
        response.read(LARGEST_ANSWER)
        if not response.isclosed() or response.will_close:  # it says more than anybody needs, or is the last one
            self._end()
        return "" if 200 <= response.status < 300 else f"{response.status} {response.reason}"

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tell(self, reason: str) -> None:
        now = self._monotonic()
        if now >= self._silent_until:
            self._silent_until = now + LOG_EVERY
            log.warning("payload log: %s does not take an event (%s): %s", self._target.host, reason, self.counts)


def _connect(target: PayloadSink) -> http.client.HTTPConnection:
    """A connection that is not open yet."""
    if target.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(target.host, target.port, timeout=PATIENCE, context=context)
    return http.client.HTTPConnection(target.host, target.port, timeout=PATIENCE)
