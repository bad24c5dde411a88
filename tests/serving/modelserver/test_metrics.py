"""The page `/metrics`."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from clusters.net.exposition import render
from serving.modelserver.base.assignment import Assignment, ModelBounds
from serving.modelserver.base.errors import ClientLeft
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.stats import StartupTimes, Stats
from serving.modelserver.execution.loading import load_model
from serving.modelserver.observe.metrics import MetricsPage, RequestMetrics
from serving.modelserver.observe.middleware import MLFLOW, OPENAI, OTHER, V1, V2, ObservabilityMiddleware, protocol_of
from serving.storage.base.artifact import Artifact
from tests.serving.modelserver.client import ask, request, tensor
from tests.serving.modelserver.conftest import Running, Serve
from tests.support import models
from tests.support.wait import eventually

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
LINE = re.compile(r"([a-z_]+)(?:\{((?:[a-z]+=\"[^\"\\]*\",?)*)\})? (\S+)")
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def samples(page: str) -> Samples:
    """Return all samples by name and labels except `revision`, and check that each follows the head of its family."""
    read: Samples = {}
    allowed: set[str] = set()
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            allowed = {name + suffix for suffix in SUFFIXES[kind]}
        elif not line.startswith("# HELP "):
            matched = LINE.fullmatch(line)
            assert matched and matched[1] in allowed, line
            labels = frozenset(re.findall(r'([a-z]+)="([^"]*)"', matched[2] or ""))
            key = matched[1], frozenset(label for label in labels if label[0] != "revision")
            assert key not in read, line
            read[key] = float(matched[3])
    return read


def found(read: Samples, name: str, **labels: str) -> float:
    """Return one sample, 0.0 when there is none."""
    return read.get((name, frozenset(labels.items())), 0.0)


async def scraped(running: Running) -> Samples:
    answer = await ask(running.management_port, request("GET", "/metrics"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.body.decode())


def page_of(metrics: RequestMetrics, stats: Stats) -> Samples:
    return samples(render(MetricsPage(metrics, stats, list).families()))


async def test_answers_are_counted_by_protocol_and_code(double: Running) -> None:
    for values in ([1.0], [2.0], ["no number"]):
        await double.infer(tensor(values))
    await double.get("/v2/health/ready")
    read = await scraped(double)
    assert found(read, "knodel_requests_total", protocol="v2", code="200") == 2
    assert found(read, "knodel_requests_total", protocol="v2", code="400") == 1
    assert found(read, "knodel_requests_total", protocol="other", code="200") == 1
    assert found(read, "knodel_request_duration_seconds_count", protocol="v2") == 3
    assert 0 < found(read, "knodel_request_duration_seconds_sum", protocol="v2") < 3


async def test_the_page_tells_of_the_start_the_slots_and_the_process(serve: Serve) -> None:
    running = await serve(models.double(), "--slots", "3")
    read = await scraped(running)
    stages = {stage: found(read, "knodel_load_seconds", stage=stage) for stage in ("fetch", "load", "warmup")}
    assert all(0 <= seconds < 10 for seconds in stages.values())
    assert stages["load"] > 0 and stages["warmup"] > 0
    assert (found(read, "knodel_slots"), found(read, "knodel_model_loaded")) == (3, 1)
    assert found(read, "process_resident_memory_bytes") > 1e6


async def test_every_sample_of_the_model_bears_its_revision(double: Running) -> None:
    await double.infer(tensor([1.0]))
    page = (await ask(double.management_port, request("GET", "/metrics"))).body.decode()
    lines = [line for line in page.splitlines() if line.startswith("knodel_")]
    assert lines and all('revision="m-00007"' in line for line in lines)


def test_who_is_inside_and_who_waits_is_told() -> None:
    now = [10.0]
    stats = Stats(lambda: now[0], "m-00001", slots=2)
    stats.change(active=2, queued=3)
    now[0] += 4
    read = page_of(RequestMetrics(), stats)
    told = [found(read, f"knodel_{name}") for name in ("slots", "slots_busy", "queue_length", "model_loaded")]
    assert told == [2, 2, 3, 0]
    assert found(read, "knodel_busy_slot_seconds_total") == 20


def test_waiting_for_the_files_is_measured_as_a_part_of_the_load() -> None:
    startup, clock = StartupTimes(), iter([10.0, 11.5, 12.0, 12.25])
    assignment = Assignment("m", "m-00001", "", "", "onnx", ModelBounds(1, 1.0, 1.0))
    artifact = Artifact(Path("model.onnx"), models.double())
    load_model(assignment, lambda: artifact, ServerLimits(), startup, monotonic=lambda: next(clock))
    assert (startup.fetch, startup.load, startup.warmup) == (1500, 2000, 250)


def test_each_stage_of_the_start_is_told_before_the_next_one_begins() -> None:
    startup, told = StartupTimes(), list[tuple[bool, ...]]()

    def clock() -> float:
        told.append((bool(startup.format), startup.fetch > 0, startup.load > 0, startup.warmup > 0))
        return float(len(told))

    assignment = Assignment("m", "m-00001", "", "", "", ModelBounds(1, 1.0, 1.0))
    load_model(
        assignment, lambda: Artifact(Path("model.onnx"), models.double()), ServerLimits(), startup, monotonic=clock
    )
    assert told[-2:] == [(True, True, False, False), (True, True, True, False)]  # loaded; warmed up
    assert startup.format == "onnx"


def test_stages_of_the_start_are_disjoint() -> None:
    stats = Stats(time.monotonic)
    stats.startup.fetch, stats.startup.load = 1500, 2000
    read = page_of(RequestMetrics(), stats)
    assert found(read, "knodel_load_seconds", stage="fetch") == 1.5
    assert found(read, "knodel_load_seconds", stage="load") == 0.5


@pytest.mark.parametrize(("seconds", "below", "bound"), [(0.001, "0.0005", "0.001"), (400.0, "300", "+Inf")])
def test_a_time_is_counted_up_to_the_first_bound_that_it_does_not_exceed(
    seconds: float, below: str, bound: str
) -> None:
    metrics = RequestMetrics()
    metrics.observe("grpc", 0, seconds)
    read = page_of(metrics, Stats(time.monotonic))
    name = "knodel_request_duration_seconds_bucket"
    assert (found(read, name, protocol="grpc", le=below), found(read, name, protocol="grpc", le=bound)) == (0, 1)


def test_batches_are_counted_by_size() -> None:
    metrics = RequestMetrics()
    for size in (1, 16, 16, 500):
        metrics.batch(size)
    read = page_of(metrics, Stats(time.monotonic))
    counts = [found(read, "knodel_batch_size_bucket", le=bound) for bound in ("1.0", "8.0", "16.0", "256.0", "+Inf")]
    assert counts == [1, 1, 3, 3, 4]
    assert found(read, "knodel_batch_size_sum") == 533


async def test_a_caller_that_leaves_is_counted_as_one(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1")
    await running.ask_and_leave()

    async def counted() -> bool:
        return found(await scraped(running), "knodel_requests_total", protocol="v2", code=str(ClientLeft.status)) == 1

    await eventually(counted)


async def test_an_application_that_raises_counts_as_500() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    read = page_of(await seen(broken), Stats(time.monotonic))
    assert found(read, "knodel_requests_total", protocol="v2", code="500") == 1


async def test_what_is_cancelled_before_its_answer_counts_as_a_caller_that_left() -> None:
    async def cancelled(scope: Scope, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    read = page_of(await seen(cancelled), Stats(time.monotonic))
    assert found(read, "knodel_requests_total", protocol="v2", code=str(ClientLeft.status)) == 1


async def seen(app: Any) -> RequestMetrics:
    """Return the metrics after one request to `app`."""
    metrics = RequestMetrics()
    observed = ObservabilityMiddleware(app, metrics, None, time.monotonic)

    async def nothing(*_: Message) -> Message:
        return {}

    with pytest.raises((ZeroDivisionError, asyncio.CancelledError)):
        scope = {"method": "POST", "path": "/v2/models/m/infer", "headers": []}
        await observed(scope, nothing, nothing)  # type: ignore[arg-type]
    return metrics


@pytest.mark.parametrize(
    ("method", "path", "protocol"),
    [
        ("POST", "/v2/models/m/infer", V2),
        ("POST", "/v2/models/m/versions/1/infer", V2),
        ("POST", "/v1/models/m:predict", V1),
        ("POST", "/invocations", MLFLOW),
        ("POST", "/v1/embeddings", OPENAI),
        ("POST", "/openai/v1/embeddings", OPENAI),
        ("POST", "/v2/rerank", OPENAI),
        ("GET", "/v1/embeddings", OTHER),
        ("GET", "/invocations", OTHER),
        ("GET", "/v2/models/m", OTHER),
        ("GET", "/v1/models/m", OTHER),
        ("POST", "/v22", OTHER),
        ("POST", "/", OTHER),
    ],
)
def test_an_inference_is_known_by_method_and_path(method: str, path: str, protocol: str) -> None:
    assert protocol_of(method, path) == protocol
