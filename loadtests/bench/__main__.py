"""Run the benchmarks of the embedded platform and of the model server, and print the figures with their aims."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from examples.magika_client import infer_request, model_file
from loadtests.bench.decider import decider
from loadtests.bench.downloads import downloads
from loadtests.bench.events import events
from loadtests.bench.figure import Figure
from loadtests.bench.gpus import allocator
from loadtests.bench.llm import llm
from loadtests.bench.loop import loop
from loadtests.bench.machine import described
from loadtests.bench.page import write_page
from loadtests.bench.platform import LOOK, BenchPlatform
from loadtests.bench.processes import cpu_by_pid, memory_by_role
from loadtests.bench.record import keep, measured_now
from loadtests.bench.servers import table
from loadtests.bench.simulated import fleet, judge, simulate
from loadtests.bench.tracing import tracing
from loadtests.bench.warm import warm
from tests.support import models

STARTS = 3  # starts of the platform after the first one
FROM_ZERO = 10  # measured starts of a model
PAIRS = 1500  # requests through the gateway, and direct to the replica
WARM_UP = 50  # pairs before the measurement
MANY = 100  # models
IDLE_FOR = 20.0  # s of an idle platform
ROUNDS = 3  # rounds of the model server and its peers
SECONDS = 4.0  # s of each load at 16 connections
MEGABYTE = 1024 * 1024
BODY = json.dumps(infer_request(Path(__file__).read_bytes())).encode()
WIDTH = 2048  # numbers in a request to a model that doubles them
NUMBERS = [float(number % 9) for number in range(WIDTH)]
WIDE = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [WIDTH], "data": NUMBERS}]}).encode()


def main() -> int:
    """Print the figures. The exit code is 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--models", type=int, default=MANY, help="number of models of the part many [%(default)s]")
    parser.add_argument("--only", choices=EVERY, nargs="+", default=EVERY, help="parts to run [all]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of the part {SERVER} [%(default)s]")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"seconds of a load of the part {SERVER} [%(default)s]"
    )
    parser.add_argument("--keep", action="store_true", help="write the figures to docs/evidence/performance.md")
    options = parser.parse_args()
    print(described())
    missed = False
    with tempfile.TemporaryDirectory(prefix="knodel-bench-") as folder:
        for name, part in _parts(options, Path(folder)):
            figures = []
            for figure in part:
                print(figure, flush=True)
                figures.append(figure)
                missed = missed or figure.missed
            if options.keep:
                write_page(keep({name: measured_now(figures)}))
    return int(missed)


def _parts(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Iterable[Figure]]]:
    """Yield the parts by name. Each part is measured while its figures are read."""
    of_platform = [name for name in options.only if name in PARTS]
    if of_platform:
        running = BenchPlatform(folder / "state")
        try:
            if "start" not in of_platform:
                running.start()
            for name in of_platform:
                yield name, PARTS[name](running, options.models)
        finally:
            running.stop()
    alone: dict[str, Callable[[], Iterable[Figure]]] = {
        **ALONE,
        LOOP: lambda: loop(folder),
        EVENTS: lambda: events(folder),
        DOWNLOADS: lambda: downloads(folder),
        TRACING: lambda: tracing(folder),
        SERVER: lambda: table.figures(table.plan(options.rounds, options.seconds), folder),
    }
    for name, measured in alone.items():
        if name in options.only:
            yield name, measured()


def _start(running: BenchPlatform, _: int) -> list[Figure]:
    first = running.start()
    took = []
    for _ in range(STARTS):
        running.stop()
        took.append(running.start())
    memory = memory_by_role(running.state)
    total = sum(memory.values()) / MEGABYTE
    parts = [Figure(f"  of it: {role}", size / MEGABYTE, "MB", None) for role, size in sorted(memory.items())]
    return [
        Figure("start to ready, first start", first, "s", 1.5),
        Figure(f"start to ready, median of {STARTS}", statistics.median(took), "s", 1.5),
        Figure("platform without models, sum of PSS", total, "MB", 250),
        *parts,
    ]


def _deploy(running: BenchPlatform, _: int) -> list[Figure]:
    began = time.perf_counter()
    running.knodel("deploy", "first", "--uri", str(model_file()), "--no-wait")
    seconds = _first_200(running, "first", began)
    running.knodel("wait", "first")
    running.knodel("delete", "first")
    return [Figure("deploy (command included) to first 200", seconds, "s", 1.5)]


def _from_zero(running: BenchPlatform, _: int) -> list[Figure]:
    running.knodel("deploy", "-f", _written(running, "zero", scaleToZeroAfter="1s"))
    connection = running.connection()
    took = []
    for _ in range(FROM_ZERO):
        _until(lambda: not running.pods("zero"), pause=0.02)
        began = time.perf_counter()
        status = connection.infer("zero", BODY)
        took.append((time.perf_counter() - began) * 1000)
        if status != 200:
            raise SystemExit(f"from zero: status {status}")
    running.knodel("delete", "zero")
    p50, largest = statistics.median(took), max(took)
    zygote = memory_by_role(running.state).get("zygote", 0) / MEGABYTE
    return [
        Figure(f"first response from zero, p50 of {FROM_ZERO}", p50, "ms", 450),
        Figure("first response from zero, maximum", largest, "ms", None),
        Figure("zygote of the ONNX engine, PSS", zygote, "MB", None),
    ]


def _gateway(running: BenchPlatform, _: int) -> list[Figure]:
    """Measure the gateway with a trivial model, and with magika, which takes 7 ms.

    The difference is larger with magika because of CPU caches: one more process moves the inference thread between
    cores.
    """
    uri = models.write(running.state.parent, "double").as_uri()
    direct, more = _both_ways(running, "light", uri, WIDE)
    heavy, more_heavy = _both_ways(running, "heavy", model_file().as_uri(), BODY)
    return [
        Figure(f"{len(WIDE) // 1000} kB request direct to the replica, p50", direct, "ms", None),
        Figure("added by the gateway, p50", more, "ms", 0.4),
        Figure("magika request direct to the replica, p50", heavy, "ms", None),
        Figure("added by the gateway, p50", more_heavy, "ms", None),
    ]


def _both_ways(running: BenchPlatform, name: str, uri: str, body: bytes) -> tuple[float, float]:
    """Return (p50 direct to the replica, added p50 through the gateway) in ms, alternately over kept connections."""
    running.knodel("deploy", "-f", _written(running, name, storageUri=uri, minReplicas=1))
    ways = (running.connection(), running.replica(name))
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * (PAIRS + WARM_UP)):
        began = time.perf_counter()
        ways[number % 2].infer(name, body)
        if number >= 2 * WARM_UP:
            took[number % 2].append((time.perf_counter() - began) * 1000)
    running.knodel("delete", name)
    through, direct = (statistics.median(times) for times in took)
    return direct, through - direct


def _many(running: BenchPlatform, count: int) -> list[Figure]:
    before = _platform_memory(running)
    documents = [_model(f"many-{number:03}", scaleToZeroAfter="1s") for number in range(count)]
    path = running.state.parent / "many.yaml"
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    began = time.perf_counter()
    running.knodel("deploy", "-f", str(path), "--timeout", "300s")
    seconds = time.perf_counter() - began
    _until(lambda: not any(_replicas_of(model) for model in running.models()), pause=1.0)
    grown = (_platform_memory(running) - before) / count / MEGABYTE
    return [
        Figure(f"{count} models deployed, each started once", seconds, "s", 60 * count / MANY),
        Figure("PSS of the platform per idle model", grown, "MB", 1),
    ]


def _idle(running: BenchPlatform, _: int) -> list[Figure]:
    before = cpu_by_pid(running.state)
    time.sleep(IDLE_FOR)
    after = cpu_by_pid(running.state)
    used = sum(after[pid] - before[pid] for pid in before if pid in after)
    return [Figure(f"idle with {len(running.models())} models, share of one core", 100 * used / IDLE_FOR, "%", 2)]


def _list(running: BenchPlatform, _: int) -> list[Figure]:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        running.knodel("list")
        took.append((time.perf_counter() - began) * 1000)
    return [Figure(f"knodel list with {len(running.models())} models, median of 5", statistics.median(took), "ms", 300)]


def _platform_memory(running: BenchPlatform) -> float:
    """Return the PSS of all processes except zygotes and replicas, in bytes."""
    memory = memory_by_role(running.state)
    return sum(size for role, size in memory.items() if role not in ("zygote", "replica"))


def _first_200(running: BenchPlatform, name: str, began: float) -> float:
    while running.connection().infer(name, BODY) != 200:  # a rejection closes the connection
        if time.perf_counter() - began > 60:
            raise SystemExit(f"{name} did not answer within 60 s")
        time.sleep(LOOK)
    return time.perf_counter() - began


def _replicas_of(model: dict[str, object]) -> int:
    status = model.get("status")
    replicas = status.get("replicas", {}) if isinstance(status, dict) else {}
    return int(replicas.get("desired", 0)) + int(replicas.get("ready", 0)) + int(replicas.get("starting", 0))


def _until(done: Callable[[], bool], pause: float = 0.1, within: float = 120.0) -> None:
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit("timed out after two minutes")
        time.sleep(pause)


def _model(name: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "knodel.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name},
        "spec": {"storageUri": model_file().as_uri(), **spec},
    }


def _written(running: BenchPlatform, name: str, **spec: object) -> str:
    path = running.state.parent / f"{name}.yaml"
    path.write_text(json.dumps(_model(name, **spec)))
    return str(path)


PARTS: dict[str, Callable[[BenchPlatform, int], list[Figure]]] = {
    "start": _start,
    "deploy": _deploy,
    "zero": _from_zero,
    "warm": lambda running, _: warm(running),
    "gateway": _gateway,
    "many": _many,
    "idle": _idle,
    "list": _list,
}
"""The parts that need a platform, in order. Each takes the platform and the number of models of the part `many`."""
SERVER = "server"  # the model server and its peers, without a platform; runs last
EVENTS = "events"  # the event webhook alone
ALONE: dict[str, Callable[[], Iterable[Figure]]] = {
    "decide": decider,
    "gpus": allocator,
    "simulate": simulate,
    "fleet": fleet,
    "judge": judge,
    "llm": llm,
}
"""The parts that need no platform and no files."""
LOOP = "loop"  # the whole autoscaler in one process
DOWNLOADS = "downloads"  # downloads of folders over HTTP
TRACING = "tracing"  # traces and metrics by OTLP; needs wrk
EVERY = [*PARTS, *ALONE, LOOP, EVENTS, DOWNLOADS, TRACING, SERVER]


if __name__ == "__main__":
    sys.exit(main())
