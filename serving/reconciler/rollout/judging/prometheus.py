"""Query the metrics of a judge from Prometheus, or from another server with its query API."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from clusters.base.sizes import format_size
from clusters.net.client import FAILURES, HttpClient, failure_reason, read_at_most
from serving.reconciler.rollout.judging.queries import NoValue, QueryBackoff, parse_value
from serving.types.rollout import MetricRule

log = logging.getLogger(__name__)

PATH: Final = "/api/v1/query"
TIMEOUT: Final = 5.0
"""s for one answer, for which a pass waits. Prometheus itself ends a query after 120 s."""
MAX_BYTES: Final = 1_048_576
"""Bytes of one answer. A judge's query returns one value, or one for each replica."""
EXPLAINED: Final = frozenset(
    {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE}
)
"""Statuses with an answer in JSON; all but the first explain a missing value."""
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
            raise NoValue("rollout.prometheusUrl is not set: set it to the address of a Prometheus")
        url = f"{self._url}{PATH}"
        try:
            async with self._client.post(url, data={"query": query}) as response:
                if response.status not in EXPLAINED:
                    raise NoValue(f"the server answered {response.status}: check rollout.prometheusUrl")
                body = await read_at_most(response, MAX_BYTES)
        except FAILURES as error:
            if isinstance(error, TimeoutError):
                self._backoff.record_timeout(query)
            raise NoValue(f"the server did not answer: {failure_reason(error)}") from error
        self._backoff.record_answer(query)
        if len(body) > MAX_BYTES:
            raise NoValue(f"the server answered more than {format_size(MAX_BYTES)}: aggregate the query")
        return body

    def _warn(self, query: str, warning: str) -> None:
        if self._warned.get(query) == warning:
            return
        if len(self._warned) >= MOST_WARNINGS:
            self._warned.clear()
        self._warned[query] = warning
        log.warning("%s", warning)
