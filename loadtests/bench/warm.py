"""Benchmark of warm pools: the time of a start, starts per second, and the effect of the refill on other models."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from examples.magika_client import infer_request, model_file
from loadtests.bench.figure import Figure, percentile
from loadtests.bench.floor import bare_starts, start_by_exec
from loadtests.bench.platform import BenchPlatform
from tests.support import models

CLAIMS = 25  # sequential starts from the pool
EXECS = 5  # starts by exec; three times as many bare ones
MEMBERS = 4  # size of the pool meanwhile
BURST, RATE = 20, 20.0  # claims at RATE per second from a pool of BURST members
ROUNDS = 4  # rounds of the burst
REFILLS = 5  # refills of as many members, each with an idle period of the same length
QUESTION = 0.01  # s between two requests to the other model
POOL = "bench"
BODY = json.dumps(infer_request(Path(__file__).read_bytes())).encode()
WIDTH = 2048
WIDE = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [WIDTH], "data": [1.0] * WIDTH}]}).encode()
PATIENCE = 120.0  # s until a timeout


def warm(running: BenchPlatform) -> list[Figure]:
    """Yield all figures of warm starts."""
    running.deploy([model("claimed")])
    running.knodel("pool", "set", POOL, "--like", "claimed", "--format", "onnx", "--size", str(MEMBERS))
    try:
        return [*_one_by_one(running), *_burst(running), *_refill(running)]
    finally:
        running.knodel("pool", "off", POOL)


def model(name: str, **spec: object) -> dict[str, object]:
    """Return a Model of magika that scales to zero as soon as possible."""
    wanted = {"storageUri": model_file().as_uri(), "scaleToZeroAfter": "1s", "maxReplicas": 1, **spec}
    return {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": wanted}


def _one_by_one(running: BenchPlatform) -> list[Figure]:
    took, stages = [], []
    for _ in range(CLAIMS):
        _full(running, MEMBERS)
        _at_zero(running, ["claimed"])
        asked = _ask(running, "claimed")
        took.append(asked.milliseconds)
        stages.append(asked.stages)
    bare = bare_starts(model_file(), 3 * EXECS)
    execs = [start_by_exec(model_file(), "bench", BODY) for _ in range(EXECS)]
    p50, floor, by_exec = statistics.median(took), statistics.median(bare), statistics.median(execs)
    parts = [_stage(stages, name) for name in ("claim", "load", "warmup", "queue", "infer")]
    return [
        Figure(f"warm claim, request to 200, p50 of {CLAIMS}", p50, "ms", 40),
        Figure("warm claim, request to 200, p95", percentile(took, 0.95), "ms", 100),
        *(Figure(f"  of it: {name}, p50", value, "ms") for name, value in parts),
        Figure("start by exec to first 200, p50", by_exec, "ms"),
        Figure("bare fork and load, p50", floor, "ms"),
        *_either(by_exec / p50, p50 / floor),
    ]


def _either(faster: float, over_floor: float) -> list[Figure]:
    """Return the two comparisons. One aim is enough: the other figure has none."""
    enough = over_floor <= 1.3
    return [
        Figure("speedup of a warm claim over exec", faster, "x", None if enough else 8, least=True),
        Figure("warm claim relative to a bare fork", over_floor, "x", 1.3 if enough else None),
    ]


def _stage(found: list[dict[str, float]], name: str) -> tuple[str, float]:
    return name, statistics.median(one.get(name, 0.0) for one in found)


def _burst(running: BenchPlatform) -> list[Figure]:
    """Send one request to each of several models at zero, at a constant rate, until the pool is empty."""
    names = [f"burst-{number:02}" for number in range(BURST)]
    running.deploy([model(name) for name in names])
    running.knodel("pool", "set", POOL, "--size", str(BURST))
    took: list[float] = []
    claimed = 0
    for _ in range(ROUNDS):
        _full(running, BURST)
        _at_zero(running, names)
        with ThreadPoolExecutor(BURST) as pool:
            began = time.perf_counter()
            asking = [pool.submit(_ask, running, name, began + number / RATE) for number, name in enumerate(names)]
            asked = [one.result() for one in asking]
        took += [one.milliseconds for one in asked]
        claimed += sum("claim" in one.stages for one in asked)
    for name in names:
        running.knodel("delete", name)
    return [
        Figure(f"{RATE:g} claims per second, {ROUNDS} x {BURST}, p50", statistics.median(took), "ms"),
        Figure(f"{RATE:g} claims per second, {ROUNDS} x {BURST}, p99", percentile(took, 0.99), "ms", 250),
        Figure("  of these: started by a claim", 100 * claimed / len(took), "%"),
    ]


def _refill(running: BenchPlatform) -> list[Figure]:
    """Measure the latency of a running model while the pool is filled, and while it is idle."""
    uri = models.write(running.state.parent, "double").as_uri()
    running.deploy([model("steady", storageUri=uri, minReplicas=1)])
    quiet: list[float] = []
    disturbed: list[float] = []
    for _ in range(REFILLS):
        running.knodel("pool", "off", POOL)
        _members(running, lambda found: not found)
        began = time.perf_counter()
        disturbed += _meanwhile(running, lambda: _fill(running))
        length = time.perf_counter() - began
        quiet += _meanwhile(running, lambda: time.sleep(length))  # noqa: B023 - called at once
    running.knodel("delete", "steady")
    calm, busy = percentile(quiet, 0.99), percentile(disturbed, 0.99)
    return [
        Figure("p99 of another model while the pool is idle", calm, "ms"),
        Figure(f"p99 of another model while {BURST} members start", busy, "ms"),
        Figure("  ratio", busy / calm, "x", 1.3),
    ]


def _fill(running: BenchPlatform) -> None:
    running.change_pool(POOL, {"size": BURST})
    _full(running, BURST)


def _meanwhile(running: BenchPlatform, work: Callable[[], None]) -> list[float]:
    """Return the latency of requests to `steady` in ms while `work` runs."""
    done, took = threading.Event(), []

    def ask() -> None:
        connection = running.connection()
        while not done.is_set():
            began = time.perf_counter()
            if connection.infer("steady", WIDE) != 200:
                raise SystemExit("a running model did not respond")
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(QUESTION)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            work()
        finally:
            done.set()
        asking.result()
    return took


@dataclass(frozen=True, slots=True)
class _Asked:
    milliseconds: float
    stages: dict[str, float]


def _ask(running: BenchPlatform, name: str, at: float = 0.0) -> _Asked:
    """Send a request over a connection of its own, at a time of `perf_counter`."""
    connection = running.connection()
    time.sleep(max(0.0, at - time.perf_counter()))
    began = time.perf_counter()
    status = connection.infer(name, BODY)
    took = (time.perf_counter() - began) * 1000
    if status != 200:
        raise SystemExit(f"{name}: status {status}")
    return _Asked(took, connection.timing)


def _full(running: BenchPlatform, size: int) -> None:
    """Wait until that many members of the pool can be claimed."""
    _until(lambda: running.pool_ready(POOL) >= size)


def _members(running: BenchPlatform, enough: Callable[[list[object]], bool]) -> None:
    _until(lambda: enough(list(running.list("pods", f"autoscaling.knodel.dev/pool={POOL}"))))


def _at_zero(running: BenchPlatform, names: list[str]) -> None:
    def none_is_up() -> bool:
        found = running.list("pods", "knodel.dev/model")
        return not {pod["metadata"]["labels"]["knodel.dev/model"] for pod in found} & set(names)

    _until(none_is_up)


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"timed out after {PATIENCE:g} s")
        time.sleep(0.05)
