"""The last day of a model from a Prometheus, in place of the ring of `history`.

The queries count what the ring counts: inferences whose responses may differ between versions. They use the metrics of
the model servers (docs/metrics.md), whose labels are the same on one machine and on Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from clusters.base.clock import Clock
from clusters.net.client import HttpClient
from clusters.net.prometheus import NoValue, post_query, read_data
from serving.dashboard.history import COARSE, FIELDS
from serving.modelserver.observe.response_stats import ERRORS, PROTOCOLS, REQUESTS

Columns = dict[str, list[float | None]]
"""`at` (seconds since the epoch) and `FIELDS`, of one version; None without a value."""

SETTING: Final = "dashboard.prometheusUrl"
PATH: Final = "/api/v1/query_range"
WINDOW: Final = "[5m]"
"""Time over which rates are taken: five scrapes of a Prometheus with its default interval of a minute."""
TIMEOUT: Final = 10.0
"""Seconds for one answer."""
MOST_BYTES: Final = 16 << 20
"""Bytes of one answer: a day of a version takes 40 kB."""
EVERY: Final = 60.0
"""Seconds for which a reading is shown again, also one that failed."""
MOST_READINGS: Final = 64
"""Models whose last reading is kept."""


class Day(NamedTuple):
    """The columns of a model by revision ("" for the whole model), or the `fault` why there are none."""

    columns: Mapping[str, Columns]
    fault: str = ""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


_MATRIX = msgspec.json.Decoder(list[_Series])


def range_queries(namespace: str, model: str) -> dict[str, str]:
    """Return a query for each of `FIELDS`: a series for each revision, and one without that label for all of them."""
    of_model = f"namespace={json.dumps(namespace)},model={json.dumps(model)}"
    inferences = f'{of_model},protocol=~"{PROTOCOLS}"'

    def rate(metric: str, labels: str, by: str) -> str:
        return f"sum by ({by}) (rate({metric}{{{labels}}}{WINDOW}))"

    def responses(codes: str, by: str) -> str:
        return rate("knodel_requests_total", f'{inferences},code=~"{codes}"', by)

    def errors(by: str) -> str:
        return f"({responses(ERRORS, by)} or 0 * {responses(REQUESTS, by)})"

    def quantile(share: float, by: str) -> str:
        first = rate("knodel_llm_first_token_seconds_bucket", of_model, f"le{by}")
        whole = rate("knodel_request_duration_seconds_bucket", inferences, f"le{by}")
        return f"(histogram_quantile({share}, {first}) or histogram_quantile({share}, {whole}))"

    loaded = f"(knodel_model_loaded{{{of_model}}} == 1)"
    return {
        "requests": f"{responses(REQUESTS, 'revision')} or {responses(REQUESTS, '')}",
        "errors": f"{errors('revision')} or {errors('')}",
        "p50": f"{quantile(0.5, ', revision')} or {quantile(0.5, '')}",
        "p99": f"{quantile(0.99, ', revision')} or {quantile(0.99, '')}",
        "replicas": f"count by (revision) {loaded} or count {loaded}",
    }


def read_matrix(body: bytes) -> dict[str, dict[float, float]]:
    """Return the finite values of an answer by revision and time. Raises NoValue."""
    try:
        data = read_data(body)
        series = _MATRIX.decode(data.result)
        return {one.metric.get("revision", ""): _finite(one.values) for one in series}
    except (msgspec.DecodeError, ValueError) as error:
        raise NoValue(f"the answer is not in the format of Prometheus' query API: {error}") from error


def _finite(values: list[tuple[float, str]]) -> dict[float, float]:
    return {at: value for at, text in values if math.isfinite(value := float(text))}


def columns_of(matrices: Mapping[str, Mapping[str, Mapping[float, float]]]) -> dict[str, Columns]:
    """Return the columns of each revision from the matrices by field; versions only if the model had several."""
    revisions = sorted({revision for matrix in matrices.values() for revision in matrix})
    if len(revisions) <= 2:  # "" and one version, which are equal
        revisions = [one for one in revisions if not one]
    return {one: _columns({name: matrices[name].get(one, {}) for name in FIELDS}) for one in revisions}


def _columns(values: Mapping[str, Mapping[float, float]]) -> Columns:
    at = sorted({moment for column in values.values() for moment in column})
    return {
        "at": list(at),
        **{name: [_rounded(column.get(moment)) for moment in at] for name, column in values.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


class PrometheusHistory:
    """Reads the last day of models from the Prometheus at `url`."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], tuple[float, asyncio.Task[Day]]] = OrderedDict()

    async def day(self, namespace: str, model: str) -> Day:
        """Return the last day of a model, of at most EVERY seconds ago. Raises nothing."""
        key, now = (namespace, model), self._clock.monotonic()
        read_at, reading = self._kept.get(key, (-math.inf, None))
        if reading is None or now - read_at >= EVERY:
            reading = asyncio.create_task(self._read(namespace, model))
            self._kept[key] = (now, reading)
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_READINGS:
                self._kept.popitem(last=False)
        return await asyncio.shield(reading)  # another viewer may wait for the same reading

    async def _read(self, namespace: str, model: str) -> Day:
        until = self._clock.now().timestamp()
        since = until - COARSE.seconds * (COARSE.places - 1)
        times = {"start": f"{since:.0f}", "end": f"{until:.0f}", "step": str(COARSE.seconds)}
        queries = range_queries(namespace, model)
        try:
            async with HttpClient(TIMEOUT) as client:
                found = await asyncio.gather(
                    *(self._matrix(client, {"query": query, **times}) for query in queries.values())
                )
        except NoValue as error:
            return Day({}, f"Prometheus at {self._url} has no history: {error}. {self._remedy()}")
        columns = columns_of(dict(zip(queries, found, strict=True)))
        if not columns:
            return Day({}, f"Prometheus at {self._url} has no metrics of this model. {self._remedy()}")
        return Day(columns)

    async def _matrix(self, client: HttpClient, form: Mapping[str, str]) -> dict[str, dict[float, float]]:
        return read_matrix(await post_query(client, f"{self._url}{PATH}", form, SETTING, MOST_BYTES))

    def _remedy(self) -> str:
        return (
            f"Check {SETTING}, that the dashboard reaches this address, and that it scrapes the model servers. "
            "The charts show what the dashboard measured since it started."
        )
