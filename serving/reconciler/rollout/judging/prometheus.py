"""Query the metrics of a judge from Prometheus, or from another server with its query API."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from clusters.net.client import HttpClient
from clusters.net.prometheus import LateAnswer, NoValue, post_query
from serving.reconciler.rollout.judging.queries import QueryBackoff, parse_value
from serving.types.rollout import MetricRule

log = logging.getLogger(__name__)

SETTING: Final = "rollout.prometheusUrl"
PATH: Final = "/api/v1/query"
TIMEOUT: Final = 5.0
"""s for one answer, for which a pass waits. Prometheus itself ends a query after 120 s."""
MAX_BYTES: Final = 1_048_576
"""Bytes of one answer. A judge's query returns one value, or one for each replica."""
MOST_WARNINGS: Final = 1000
"""Warnings kept, so that each is logged once and not at every judgement."""


class Prometheus:
    """A client of the Prometheus server at `url`; with an empty `url` no query has a value."""

    def __init__(self, url: str, timeout: float = TIMEOUT, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = url.rstrip("/")
        self._client = HttpClient(timeout)
        self._warned: dict[str, str] = {}
        self._backoff = QueryBackoff(monotonic)

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """Send all queries at once. Return each metric's value by its name, None without a value. Raises nothing."""
        values = await asyncio.gather(*(self._value(rule) for rule in rules))
        return {rule.name: value for rule, value in zip(rules, values, strict=True)}

    async def close(self) -> None:
        """Close all connections; the next query opens new ones."""
        await self._client.close()

    async def _value(self, rule: MetricRule) -> float | None:
        if self._backoff.is_paused(rule.query):
            return None
        try:
            value = parse_value(await self._fetch(rule.query))
        except NoValue as error:
            self._warn(rule.query, f"metric {rule.name} of a rollout has no value: {error}")
            return None
        self._warned.pop(rule.query, None)
        return value

    async def _fetch(self, query: str) -> bytes:
        """Return the body of the answer. Raises NoValue."""
        if not self._url:
            raise NoValue(f"{SETTING} is not set: set it to the address of a Prometheus")
        try:
            body = await post_query(self._client, f"{self._url}{PATH}", {"query": query}, SETTING, MAX_BYTES)
        except LateAnswer:
            self._backoff.record_timeout(query)
            raise
        self._backoff.record_answer(query)
        return body

    def _warn(self, query: str, warning: str) -> None:
        if self._warned.get(query) == warning:
            return
        if len(self._warned) >= MOST_WARNINGS:
            self._warned.clear()
        self._warned[query] = warning
        log.warning("%s", warning)
