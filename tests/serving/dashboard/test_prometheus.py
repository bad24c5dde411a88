"""The last day from a Prometheus: its queries, its answers, and what a page has without an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from clusters.base.objects import MODEL
from clusters.net.prometheus import NoValue
from serving.dashboard.app import Dashboard
from serving.dashboard.history import COARSE, FIELDS, Amount, SeriesName
from serving.dashboard.prometheus import EVERY, PrometheusHistory, columns_of, range_queries, read_matrix
from serving.dashboard.sampler import Sampler
from serving.modelserver.observe.response_stats import ERRORS, PROTOCOLS, REQUESTS, outcome_of
from tests.serving.dashboard.conftest import Desk
from tests.serving.dashboard.test_pages import model

AT = 1_800_000_000.0


def matrix(series: Mapping[str, list[tuple[float, str]]]) -> dict[str, Any]:
    """An answer of Prometheus, by revision; "" is the series without labels."""
    result = [
        {"metric": {"revision": revision} if revision else {}, "values": values} for revision, values in series.items()
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def test_each_field_has_a_query_of_the_model_by_revision_and_in_all() -> None:
    queries = range_queries("default", "iris")
    assert tuple(queries) == FIELDS
    for query in queries.values():
        assert 'namespace="default",model="iris"' in query
        assert "revision)" in query and query.count("namespace=") == query.count('namespace="default"')


def test_a_name_cannot_change_a_query() -> None:
    for query in range_queries("default", 'x"} or up{a="').values():
        assert 'model="x\\"} or up{a=\\""' in query


@pytest.mark.parametrize("protocol", ["v2", "grpc", "openai", "grpc-other", "management"])
def test_the_patterns_count_what_the_page_of_a_replica_counts(protocol: str) -> None:
    import re

    counted = re.fullmatch(PROTOCOLS, protocol) is not None
    codes = range(17) if protocol.startswith("grpc") else range(200, 600)
    for code in codes:
        outcome = outcome_of(protocol, code)
        assert (counted and re.fullmatch(REQUESTS, str(code)) is not None) == (outcome != "other"), code
        assert (counted and re.fullmatch(ERRORS, str(code)) is not None) == (outcome == "error"), code


def test_numbers_that_are_not_finite_are_gaps() -> None:
    answer = matrix({"": [(AT, "1.5"), (AT + 60, "NaN"), (AT + 120, "+Inf")], "iris-00001": [(AT + 60, "2")]})
    assert read_matrix(json.dumps(answer).encode()) == {"": {AT: 1.5}, "iris-00001": {AT + 60: 2.0}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"status": "error", "error": "parse error"}', "refused the query: parse error"),
        ("<html>", "not in the format"),
        ('{"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}', "not in the format"),
        (json.dumps(matrix({"": [(AT, "two")]})), "not in the format"),
    ],
)
def test_another_answer_is_refused(body: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        read_matrix(body.encode())


def test_versions_are_columns_only_if_there_were_several() -> None:
    one = {name: {"": {AT: 1.0}, "iris-00001": {AT: 1.0}} for name in FIELDS}
    assert columns_of(one) == {"": {"at": [AT], **{name: [1.0] for name in FIELDS}}}
    two = {**one, "requests": {"": {AT: 1.0, AT + 60: 2.0}, "iris-00001": {AT: 1.0}, "iris-00002": {AT + 60: 2.0}}}
    found = columns_of(two)
    assert list(found) == ["", "iris-00001", "iris-00002"]
    assert found[""]["at"] == [AT, AT + 60]
    assert found[""]["replicas"] == [1.0, None]
    assert columns_of({name: {} for name in FIELDS}) == {}


class Server:
    """A server with the API of Prometheus, which counts the queries."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.answer: dict[str, Any] = matrix({"": [(AT, "3")]})
        self.status = 200

    async def handle(self, request: web.Request) -> web.Response:
        """Answer any query."""
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
async def server(desk: Desk) -> AsyncIterator[Server]:
    """The dashboard `desk` with such a server in its settings."""
    made, app = Server(), web.Application()
    app.router.add_post("/api/v1/query_range", made.handle)
    await desk.add(MODEL, model())
    async with TestServer(app) as running:
        sampler = Sampler((), lambda: pytest.fail("not sampled"), desk.history, desk.clock)
        history = PrometheusHistory(str(running.make_url("/")), desk.clock)
        desk.app = Dashboard(
            desk.objects, sampler, desk.sessions, desk.access, desk.tools, desk.clock, {"127.0.0.1"}, history
        )
        yield made


async def series(desk: Desk, window: str = "day", name: str = "iris") -> Any:
    answer = await (await desk.logged_in()).get(f"/dashboard/models/default/{name}/series?window={window}")
    return answer.json() if answer.status_code == 200 else answer.status_code


async def test_the_day_comes_from_prometheus_and_the_quarter_from_the_ring(desk: Desk, server: Server) -> None:
    now = desk.clock.now().timestamp()
    desk.history.add(SeriesName("default", "iris"), Amount(50), 5.0, 2, now)
    found = await series(desk)
    assert found["note"] == "" and found["series"][0]["requests"] == [3.0]
    assert len(server.forms) == len(FIELDS)
    for form in server.forms:
        assert form["step"] == str(COARSE.seconds)
        assert float(form["end"]) - float(form["start"]) == COARSE.seconds * (COARSE.places - 1)
        assert float(form["end"]) == pytest.approx(now, abs=1)
    assert (await series(desk, "quarter"))["series"][0]["requests"] == [10.0]


async def test_prometheus_is_read_once_in_a_minute(desk: Desk, server: Server) -> None:
    for _ in range(3):
        await series(desk)
    assert len(server.forms) == len(FIELDS)
    desk.clock.step(EVERY)
    await series(desk)
    assert len(server.forms) == 2 * len(FIELDS)


async def test_only_models_that_exist_are_queried(desk: Desk, server: Server) -> None:
    assert await series(desk, name="other%22%7D") == 404
    assert not server.forms


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (404, {}, "the server answered 404: check dashboard.prometheusUrl"),
        (400, {"status": "error", "error": "bad range"}, "refused the query: bad range"),
        (200, matrix({}), "no metrics of this model"),
    ],
)
async def test_without_an_answer_the_page_says_why_and_shows_the_ring(
    desk: Desk, server: Server, status: int, answer: dict[str, Any], words: str
) -> None:
    server.status, server.answer = status, answer
    desk.history.add(SeriesName("default", "iris"), Amount(50), 5.0, 2, desk.clock.now().timestamp())
    found = await series(desk)
    assert words in found["note"] and "Check dashboard.prometheusUrl" in found["note"]
    assert found["note"].startswith("Prometheus at http://127.0.0.1:")
    assert found["series"][0]["requests"] == [10.0]


async def test_a_prometheus_that_does_not_run_is_named(desk: Desk) -> None:
    day = await PrometheusHistory("http://127.0.0.1:9/prometheus", desk.clock).day("default", "iris")
    assert not day.columns
    assert "Prometheus at http://127.0.0.1:9/prometheus has no history: the server did not answer" in day.fault
