"""The progress of first starts: one Pod of each revision that was never ready is polled.

The progress is written into three objects (PodAutoscaler, Revision, Model), so updates of a long download are limited
to one per `NEWS_INTERVAL`. The first poll comes about a second after the start.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from autoscaler.metrics.stat import BadSample, NoSample
from autoscaler.reconciler.status import is_initialized
from clusters.base.clock import Clock
from clusters.base.objects import Key, Object, is_deleting
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready

log = logging.getLogger(__name__)

INTERVAL: Final = 1.0
"""Seconds between two polls of a Pod."""
MOST_AT_ONCE: Final = 64  # concurrent polls: reads of ready replicas share the client and take precedence
NEWS_INTERVAL: Final = 5.0
"""Seconds between two updates of one Pod: with 50 concurrent long starts, 30 writes a second."""


class ProgressSource(Protocol):
    """A source of the progress of starting servers."""

    async def progress(self, endpoint: Endpoint) -> str:
        """Return the progress as text. Raises NoSample or BadSample."""
        ...


class StartProgress:
    """Polls Pods while some revision is followed."""

    def __init__(self, source: ProgressSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._endpoints: dict[Key, Endpoint] = {}
        self._texts: dict[Key, str] = {}
        self._reported_at: dict[Key, float] = {}
        self._any_followed = asyncio.Event()

    def follow(self, key: Key, pod_autoscaler: Object, pods: Iterable[Object]) -> str:
        """Poll one of these Pods until the initial scale was reached; return its last progress."""
        endpoint = None
        if not is_initialized(pod_autoscaler):
            found = (endpoint_of(pod) for pod in pods if not is_ready(pod) and not is_deleting(pod))
            endpoint = min((one for one in found if one is not None), key=lambda one: one.pod, default=None)
        if endpoint is None:
            self.forget(key)
            return ""
        if self._endpoints.get(key) != endpoint:
            self.forget(key)  # the text is of another Pod
        self._endpoints[key] = endpoint
        self._any_followed.set()
        return self._texts.get(key, "")

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone or has no progress to report any more."""
        self._endpoints.pop(key, None)
        self._texts.pop(key, None)
        self._reported_at.pop(key, None)

    async def run(self, enqueue: Callable[[Key], None]) -> None:
        """Poll until cancelled; `enqueue` receives each revision with a new progress."""
        while True:
            await self._any_followed.wait()
            await self._clock.sleep(INTERVAL)
            endpoints = list(self._endpoints.items())
            for begin in range(0, len(endpoints), MOST_AT_ONCE):
                await self._read(endpoints[begin : begin + MOST_AT_ONCE], enqueue)
            if not self._endpoints:
                self._any_followed.clear()

    async def _read(self, endpoints: Sequence[tuple[Key, Endpoint]], enqueue: Callable[[Key], None]) -> None:
        """Read these Pods, and report changed texts: the end of a start at once, other changes after a while."""
        texts = await asyncio.gather(*(self._read_one(endpoint) for _, endpoint in endpoints))
        for (key, endpoint), text in zip(endpoints, texts, strict=True):
            if text is None or text == self._texts.get(key, "") or self._endpoints.get(key) != endpoint:
                continue
            now = self._clock.monotonic()
            if not text or self._reported_at.get(key, -math.inf) + NEWS_INTERVAL <= now:
                self._texts[key], self._reported_at[key] = text, now
                enqueue(key)

    async def _read_one(self, endpoint: Endpoint) -> str | None:
        """Return the Pod's progress; None if it does not answer or has no server of ours, so that the last text
        remains.
        """
        try:
            return await self._source.progress(endpoint)
        except (NoSample, BadSample) as error:
            log.debug("%s: %s", endpoint.pod, error)
        except Exception:  # an error in one Pod must not stop the others
            log.exception("%s: its progress cannot be read", endpoint.pod)
        return None
