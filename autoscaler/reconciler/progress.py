"""How far first replicas are: one Pod of each revision that was never ready is asked, and its word kept.

What it says is written into three objects (PodAutoscaler, Revision, Model), so of a long download one word in a while
is passed on. The start of a replica is a second old, or nearly, before somebody asks.
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
"""s between two questions to a Pod."""
MOST_AT_ONCE: Final = 64  # questions: those to replicas that serve have the same client, and come first
NEWS_INTERVAL: Final = 5.0
"""s between two words of a Pod that are passed on: with 50 long starts at once, 30 writes a second."""


class ProgressSource(Protocol):
    """Servers that start."""

    async def progress(self, endpoint: Endpoint) -> str:
        """How far it is, for people. Raises NoSample or BadSample."""
        ...


class Progress:
    """Asks while there is somebody to ask."""

    def __init__(self, source: ProgressSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._asked: dict[Key, Endpoint] = {}
        self._said: dict[Key, str] = {}
        self._told_at: dict[Key, float] = {}
        self._somebody = asyncio.Event()

    def follow(self, key: Key, pod_autoscaler: Object, pods: Iterable[Object]) -> str:
        """Ask one of these Pods from now on, while the initial scale was not reached; what it said last."""
        endpoint = None if is_initialized(pod_autoscaler) else _first(pods)
        if endpoint is None:
            self.forget(key)
            return ""
        if self._asked.get(key) != endpoint:
            self.forget(key)  # another Pod's word
        self._asked[key] = endpoint
        self._somebody.set()
        return self._said.get(key, "")

    def forget(self, key: Key) -> None:
        """The revision is gone, or has nothing to tell any more."""
        self._asked.pop(key, None)
        self._said.pop(key, None)
        self._told_at.pop(key, None)

    async def run(self, news: Callable[[Key], None]) -> None:
        """Ask until cancelled; calls `news` with each revision whose Pod says something else than before."""
        while True:
            await self._somebody.wait()
            await self._clock.sleep(INTERVAL)
            await self._ask_all(news)
            if not self._asked:
                self._somebody.clear()

    async def _ask_all(self, news: Callable[[Key], None]) -> None:
        asked = list(self._asked.items())
        for begin in range(0, len(asked), MOST_AT_ONCE):
            await self._ask_some(asked[begin : begin + MOST_AT_ONCE], news)

    async def _ask_some(self, asked: Sequence[tuple[Key, Endpoint]], news: Callable[[Key], None]) -> None:
        words = await asyncio.gather(*(self._ask(endpoint) for _, endpoint in asked))
        for (key, endpoint), word in zip(asked, words, strict=True):
            if word is not None and self._asked.get(key) == endpoint and self._is_news(key, word):
                self._said[key], self._told_at[key] = word, self._clock.monotonic()
                news(key)

    def _is_news(self, key: Key, word: str) -> bool:
        """An end is told at once, more of the same after a while."""
        due = self._told_at.get(key, -math.inf) + NEWS_INTERVAL <= self._clock.monotonic()
        return self._said.get(key, "") != word and (due or not word)

    async def _ask(self, endpoint: Endpoint) -> str | None:
        """Its word; None of one that is silent, or no server of ours: what was said before stands."""
        try:
            return await self._source.progress(endpoint)
        except (NoSample, BadSample) as error:
            log.debug("%s: %s", endpoint.pod, error)
        except Exception:  # the frame: what one Pod says must not keep others' words, nor end all scaling
            log.exception("%s: its progress cannot be read", endpoint.pod)
        return None


def _first(pods: Iterable[Object]) -> Endpoint | None:
    """The first by name that has an address, is not ready, and stays."""
    found = (endpoint_of(pod) for pod in pods if not is_ready(pod) and not is_deleting(pod))
    return min((one for one in found if one is not None), key=lambda one: one.pod, default=None)
