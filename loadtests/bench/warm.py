"""Starts out of a warm pool: how fast, how many a second, and what the refill costs others."""

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
from loadtests.bench.platform import Platform
from tests.support import models

CLAIMS = 25  # starts out of the pool, one after the other
EXECS = 5  # starts by exec, and three times as many bare ones
MEMBERS = 4  # of the pool meanwhile
BURST, RATE = 20, 20.0  # claims at RATE a second out of a pool of BURST members
ROUNDS = 4  # of the burst
REFILLS = 5  # of as many members, each beside a quiet time of the same length
QUESTION = 0.01  # s between two requests to the model that is disturbed
POOL = "bench"
BODY = json.dumps(infer_request(Path(__file__).read_bytes())).encode()
WIDTH = 2048
WIDE = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [WIDTH], "data": [1.0] * WIDTH}]}).encode()
PATIENCE = 120.0  # s for a state that is waited for


def warm(running: Platform) -> list[Figure]:
    """All figures of warm starts."""
    running.deploy([model("claimed")])
    running.knodel("pool", "set", POOL, "--like", "claimed", "--size", str(MEMBERS))
    try:
        return [*_one_by_one(running), *_burst(running), *_refill(running)]
    finally:
        running.knodel("pool", "off", POOL)


def model(name: str, **spec: object) -> dict[str, object]:
    """A Model of magika that goes to zero as soon as it may."""
    wanted = {"storageUri": model_file().as_uri(), "scaleToZeroAfter": "1s", "maxReplicas": 1, **spec}
    return {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": wanted}


def _one_by_one(running: Platform) -> list[Figure]:
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
        Figure("the same model by exec, to its first 200, p50", by_exec, "ms"),
        Figure("bare fork and load, p50", floor, "ms"),
        *_either(by_exec / p50, p50 / floor),
    ]


def _either(faster: float, over_floor: float) -> list[Figure]:
    """One of the two aims is enough: the other one is shown without."""
    enough = over_floor <= 1.3
    return [
        Figure("warm claim, times faster than by exec", faster, "x", None if enough else 8, least=True),
        Figure("warm claim, times the bare floor", over_floor, "x", 1.3 if enough else None),
    ]


def _stage(found: list[dict[str, float]], name: str) -> tuple[str, float]:
    return name, statistics.median(one.get(name, 0.0) for one in found)


def _burst(running: Platform) -> list[Figure]:
    """One request each to models at zero, in equal steps, until the pool is empty."""
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
        Figure(f"{RATE:g} claims a second, {ROUNDS} x {BURST}, p50", statistics.median(took), "ms"),
        Figure(f"{RATE:g} claims a second, {ROUNDS} x {BURST}, p99", percentile(took, 0.99), "ms", 250),
        Figure("  of it: started by a claim", 100 * claimed / len(took), "%"),
    ]


def _refill(running: Platform) -> list[Figure]:
    """A model that is up, asked all the time, while the pool is filled from nothing, and while nothing happens."""
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
        Figure("another model's p99 while nothing happens", calm, "ms"),
        Figure(f"another model's p99 while {BURST} members are started", busy, "ms"),
        Figure("  times as much", busy / calm, "x", 1.3),
    ]


def _fill(running: Platform) -> None:
    running.change_pool(POOL, {"size": BURST})
    _full(running, BURST)


def _meanwhile(running: Platform, work: Callable[[], None]) -> list[float]:
    """Milliseconds of requests to `steady` while `work` goes on."""
    done, took = threading.Event(), []

    def ask() -> None:
        connection = running.connection()
        while not done.is_set():
            began = time.perf_counter()
            if connection.infer("steady", WIDE) != 200:
                raise SystemExit("a model that was up did not answer")
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


def _ask(running: Platform, name: str, at: float = 0.0) -> _Asked:
    """One request over a connection of its own, at a moment of `perf_counter`."""
    connection = running.connection()
    time.sleep(max(0.0, at - time.perf_counter()))
    began = time.perf_counter()
    status = connection.infer(name, BODY)
    took = (time.perf_counter() - began) * 1000
    if status != 200:
        raise SystemExit(f"{name}: the answer was {status}")
    return _Asked(took, connection.timing)


def _full(running: Platform, size: int) -> None:
    """Wait until the pool has that many members that can be claimed."""
    _until(lambda: running.pool_ready(POOL) >= size)


def _members(running: Platform, enough: Callable[[list[object]], bool]) -> None:
    _until(lambda: enough(list(running.list("pods", f"autoscaling.knodel.dev/pool={POOL}"))))


def _at_zero(running: Platform, names: list[str]) -> None:
    def none_is_up() -> bool:
        found = running.list("pods", "knodel.dev/model")
        return not {pod["metadata"]["labels"]["knodel.dev/model"] for pod in found} & set(names)

    _until(none_is_up)


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"what was waited for did not happen within {PATIENCE:g} s")
        time.sleep(0.05)
