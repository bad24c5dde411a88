"""The page `/stats/answers` with all requests, whose latency the autoscaler reads (`test_split`: the judge's part)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from autoscaler.metrics.response_latency import parse_latency_totals
from clusters.base.latency_buckets import bucket_of
from serving.modelserver.base.errors import ClientLeft
from serving.modelserver.base.stats import Stats
from serving.modelserver.grpc.statuses import STATUSES, code_of
from serving.modelserver.observe.metrics import RequestMetrics
from serving.modelserver.observe.response_stats import GRPC, GRPC_OTHER, Outcome, ResponseStats, outcome_of
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import parse_reading
from tests.serving.modelserver.client import ask, request, tensor
from tests.serving.modelserver.conftest import REVISION, Running, Serve
from tests.serving.modelserver.grpc_parts import begin, channel_to, floats, infer, serving
from tests.support import models
from tests.support.wait import eventually


async def told(running: Running) -> bytes:
    return (await ask(running.management_port, request("GET", "/stats/answers"))).body


async def test_inferences_are_told_and_nothing_else(double: Running) -> None:
    for values in ([1.0], [2.0], ["no number"]):
        await double.infer(tensor(values))
    await double.get("/v2/health/ready")
    await double.get("/v2/models/m")
    await double.post({}, "/v2/models/another/infer")
    page = json.loads(await told(double))
    assert page["revision"] == REVISION
    assert (page["requests"], page["errors"], sum(page["latency"].values())) == (3, 1, 2)


async def test_a_process_keeps_its_name_and_another_has_another(serve: Serve) -> None:
    one, other = await serve(models.double()), await serve(models.double())
    names = [parse_reading(await told(running)).process for running in (one, one, other)]
    assert names[0] == names[1] != names[2]


async def test_a_caller_that_leaves_counts_with_the_time_that_it_waited(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1")
    await running.ask_and_leave()

    async def counted() -> Any:
        page = json.loads(await told(running))
        return page if page["requests"] else None

    page = await eventually(counted)
    assert (page["requests"], page["errors"], sum(page["latency"].values())) == (1, 0, 1)


async def test_over_grpc_inferences_alone_are_told() -> None:
    async with serving(models.double()) as parts, channel_to(parts) as channel:
        await infer(channel, floats(1.0))
        await begin(channel, "ServerLive", b"")
        await eventually(lambda: len(parts.codes()) == 2)
        page = ResponseStats(parts.metrics, parts.stats).to_json()
    assert (page["requests"], page["errors"], sum(page["latency"].values())) == (1, 0, 1)


def test_answers_of_all_protocols_add_up_and_errors_have_no_latency() -> None:
    metrics = RequestMetrics()
    for protocol, code, seconds in (("v1", 200, 0.01), ("v2", 200, 0.01), (GRPC, 0, 0.5), ("v2", 503, 9.0)):
        metrics.observe(protocol, code, seconds)
    page = ResponseStats(metrics, Stats(time.monotonic, "m-00001")).to_json()
    assert (page["requests"], page["errors"]) == (4, 1)
    assert page["latency"] == {str(bucket_of(0.01)): 2, str(bucket_of(0.5)): 1}
    assert parse_latency_totals(json.dumps(page).encode()).latency == {bucket_of(0.01): 2, bucket_of(0.5): 1}


def test_before_anything_is_asked_the_page_is_a_reading_of_nothing() -> None:
    page = ResponseStats(RequestMetrics(), Stats(time.monotonic)).to_json()
    assert parse_reading(json.dumps(page).encode()).totals == Counts()


@pytest.mark.parametrize(
    ("protocol", "code", "outcome"),
    [
        ("v2", 200, "timed"),
        ("v1", ClientLeft.status, "timed"),
        ("v2", 400, "error"),
        ("v2", 429, "error"),
        ("v2", 500, "error"),
        ("v1", 504, "error"),
        ("mlflow", 500, "error"),
        ("openai", 200, "timed"),
        ("openai", ClientLeft.status, "timed"),
        ("openai", 429, "error"),
        ("openai", 503, "error"),
        ("openai", 404, "other"),
        ("v2", 404, "other"),
        ("v2", 413, "other"),
        ("other", 200, "other"),
        ("other", 500, "other"),
        (GRPC, 0, "timed"),
        (GRPC, 1, "timed"),
        (GRPC, 13, "error"),
        (GRPC, 5, "other"),
        (GRPC_OTHER, 0, "other"),
    ],
)
def test_what_may_tell_one_version_from_another_counts(protocol: str, code: int, outcome: Outcome) -> None:
    assert outcome_of(protocol, code) == outcome


SHARED: dict[int, Any] = {408: 504, 413: 429}
"""Statuses that have one code of gRPC with another, whose outcome they have there."""


@pytest.mark.parametrize("status", STATUSES)
def test_an_error_counts_alike_over_both_protocols(status: int) -> None:
    assert outcome_of(GRPC, code_of(STATUSES[status])) == outcome_of("v2", SHARED.get(status, status))
