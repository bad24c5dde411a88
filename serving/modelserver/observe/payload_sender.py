"""Send payload events to a URL from a dedicated thread.

Adding an event never blocks: events that do not fit into the queue are dropped and counted.
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

MAX_EVENTS: Final = 1000  # in the queue
MAX_BYTES: Final = 64 * MEBIBYTE  # in the queue and in delivery: one request of the largest size
STEP_TIMEOUT: Final = 10.0  # s for connecting, sending or reading in a delivery
LOG_EVERY: Final = 60.0  # s between two log lines about failures
MAX_RESPONSE_SIZE: Final = 64 * 1024  # bytes of a response that are read so that the connection can be reused


@dataclass(slots=True)
class DeliveryCounts:
    """The number of events by outcome."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


class PayloadSender:
    """Delivers events to `target` in order. An event is delivered twice when its connection breaks after the request.

    `monotonic` returns seconds.
    """

    def __init__(self, target: PayloadSink, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._monotonic = monotonic
        self._connection: http.client.HTTPConnection | None = None  # used only by the thread
        self._waiting: deque[PayloadEvent] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._next_log_at = 0.0
        self._thread: threading.Thread | None = None
        self.counts = DeliveryCounts()

    def offer(self, event: PayloadEvent) -> None:
        """Queue an event, or drop and count it when the queue is full."""
        with self._changed:
            if self._closing or len(self._waiting) >= MAX_EVENTS or self._bytes + event.size > MAX_BYTES:
                self.counts.dropped += 1
                return
            self._waiting.append(event)
            self._bytes += event.size
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="payload-log", daemon=True)
                self._thread.start()

    def drop(self) -> None:
        """Count an event that was dropped because it is too large."""
        with self._changed:
            self.counts.dropped += 1

    def close(self, timeout: float) -> None:
        """Accept no more events, and send the queued ones; blocks, at most `timeout` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout)
        if self._waiting:
            log.warning(
                "payload log: %d events were not delivered to %s in time", len(self._waiting), self._target.host
            )

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    break
                event = self._waiting.popleft()
            reason = self._deliver(event)
            with self._changed:
                self._bytes -= event.size
                if reason:
                    self.counts.failed += 1
                else:
                    self.counts.sent += 1
            if reason and (now := self._monotonic()) >= self._next_log_at:
                self._next_log_at = now + LOG_EVERY
                log.warning("payload log: delivery to %s failed (%s): %s", self._target.host, reason, self.counts)
        self._disconnect()

    def _deliver(self, event: PayloadEvent) -> str:
        """Deliver an event; return why it failed, "" when it did not."""
        kept = self._connection
        try:
            return self._post(event, kept or _connect(self._target))
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an invalid header
            self._disconnect()
            if kept is None or not isinstance(error, ConnectionError):
                return str(error) or type(error).__name__
        return self._deliver(event)  # nearly always the server had closed the idle connection before the request

    def _post(self, event: PayloadEvent, connection: http.client.HTTPConnection) -> str:
        self._connection = connection
        headers = {**event.headers, "content-length": str(event.size)}
        connection.request("POST", self._target.path, iter(event.body), headers)
        response = connection.getresponse()
        response.read(MAX_RESPONSE_SIZE)
        if not response.isclosed() or response.will_close:  # too long, or the last on its connection
            self._disconnect()
        return "" if 200 <= response.status < 300 else f"{response.status} {response.reason}"

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _connect(target: PayloadSink) -> http.client.HTTPConnection:
    """Return a connection that opens with its first request."""
    if target.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(target.host, target.port, timeout=STEP_TIMEOUT, context=context)
    return http.client.HTTPConnection(target.host, target.port, timeout=STEP_TIMEOUT)
