"""Further metrics of a judge: what a Prometheus, or another server with its query API, answers now."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

import aiohttp

from clusters.base.sizes import format_size
from clusters.net.session import LazySession, read_at_most
from serving.reconciler.rollout.judging.query_answer import NoValue, value_in
from serving.reconciler.rollout.judging.query_backoff import Rests
from serving.types.rollout import MetricRule

log = logging.getLogger(__name__)

PATH: Final = "/api/v1/query"
TIMEOUT: Final = 5.0
"""s for one answer, for which a pass waits; Prometheus itself gives up after 120."""
MAX_BYTES: Final = 1_048_576
"""Bytes of one answer; a judge's query has one value, or one for each replica."""
EXPLAINED: Final = frozenset(
    {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE}
)
"""Statuses with an answer in JSON; all but the first say why there is no value."""
MOST_SAID: Final = 1000
"""Complaints remembered, so that each is in the log once and not at every look."""


class Prometheus:
    """The server at `url`; "" for none."""

    def __init__(self, url: str, timeout: float = TIMEOUT, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url = url.rstrip("/")
        self._session = LazySession(timeout, aiohttp.TCPConnector)
        self._said: dict[str, str] = {}
        self._rests = Rests(monotonic)

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """The value of each metric by its name, None for one that has none; asks for all at once. Raises nothing."""
        values = await asyncio.gather(*(self._value(rule) for rule in rules))
        return {rule.name: value for rule, value in zip(rules, values, strict=True)}

    async def close(self) -> None:
        """Close all connections; the next question opens new ones."""
        await self._session.close()

    async def _value(self, rule: MetricRule) -> float | None:
        if self._rests.holds(rule.query):
            return None
        try:
            value = value_in(await self._ask(rule.query))
        except NoValue as error:
            self._complain(rule.query, f"metric {rule.name} of a rollout has no value: {error}")
            return None
        self._said.pop(rule.query, None)
        return value

    async def _ask(self, query: str) -> bytes:
        """The body of the answer. Raises NoValue."""
        if not self._url:
            raise NoValue("rollout.prometheusUrl is not set: set it to the address of a Prometheus")
        url = f"{self._url}{PATH}"
        try:
            async with self._session.open().post(url, data={"query": query}, allow_redirects=False) as response:
                if response.status not in EXPLAINED:
                    raise NoValue(f"the server answered {response.status}: check rollout.prometheusUrl")
                body = await read_at_most(response, MAX_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._rests.begin(query)
            raise NoValue(f"the server did not answer: {str(error) or type(error).__name__}") from error
        self._rests.end(query)
        if len(body) > MAX_BYTES:
            raise NoValue(f"the server answered more than {format_size(MAX_BYTES)}: aggregate the query")
        return body

    def _complain(self, query: str, what: str) -> None:
        if self._said.get(query) == what:
            return
        if len(self._said) >= MOST_SAID:
            self._said.clear()
        self._said[query] = what
        log.warning("%s", what)
