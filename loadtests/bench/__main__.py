"""Run all measurements of the embedded platform and print them beside their aims."""

from __future__ import annotations

import argparse
import json
import os
import platform as machine
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.platform import LOOK, Platform, infer
from loadtests.bench.processes import cpu_by_pid, memory_by_role

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from magika_client import infer_request, model_file

FROM_ZERO = 10  # starts measured
PAIRS = 1500  # requests through the gateway, and as many to the replica itself
MANY = 100  # models
IDLE_FOR = 20.0  # s of watching an idle platform
MEGABYTE = 1024 * 1024
BODY = json.dumps(infer_request(Path(__file__).read_bytes())).encode()


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure; `aim` is the largest value that is good enough, None when there is none."""

    what: str
    value: float
    unit: str
    aim: float | None

    def __str__(self) -> str:
        verdict = (
            ""
            if self.aim is None
            else f"aim ≤ {self.aim:g} {self.unit}  {'ok' if self.value <= self.aim else 'MISSED'}"
        )
        return f"{self.what:<58} {self.value:>9.3f} {self.unit:<6} {verdict}"


def main() -> int:
    """Print the figures; exit code 1 when an aim is missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--models", type=int, default=MANY, help="how many models the many-models part deploys")
    models = parser.parse_args().models
    print(f"{machine.platform()}, {os.cpu_count()} cores, Python {machine.python_version()}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="knodel-bench-") as folder:
        running = Platform(Path(folder) / "state")
        try:
            for part in (_start, _deploy, _from_zero, _gateway, lambda p: _many(p, models), _idle, _list):
                for figure in part(running):
                    print(figure, flush=True)
                    figures.append(figure)
        finally:
            running.stop()
    return int(any(figure.aim is not None and figure.value > figure.aim for figure in figures))


def _start(running: Platform) -> list[Figure]:
    seconds = running.start()
    memory = memory_by_role(running.state)
    total = sum(memory.values()) / MEGABYTE
    parts = [Figure(f"  of it: {role}", size / MEGABYTE, "MB", None) for role, size in sorted(memory.items())]
    return [
        Figure("up to ready", seconds, "s", 1.5),
        Figure("platform without models, sum of PSS", total, "MB", 250),
        *parts,
    ]


def _deploy(running: Platform) -> list[Figure]:
    began = time.perf_counter()
    running.knodel("deploy", "first", "--uri", str(model_file()), "--no-wait")
    seconds = _first_200(running, "first", began)
    running.knodel("wait", "first")
    return [Figure("deploy (command included) to first 200", seconds, "s", 1.5)]


def _from_zero(running: Platform) -> list[Figure]:
    running.knodel("deploy", "-f", _written(running, "zero", scaleToZeroAfter="1s"))
    connection = running.connection()
    took = []
    for _ in range(FROM_ZERO):
        _until(lambda: _replicas(running, "zero") == 0)
        began = time.perf_counter()
        status = infer(connection, "zero", BODY)
        took.append((time.perf_counter() - began) * 1000)
        if status != 200:
            raise SystemExit(f"from zero: the answer was {status}")
    running.knodel("delete", "zero")
    p50, largest = statistics.median(took), max(took)
    zygote = memory_by_role(running.state).get("zygote", 0) / MEGABYTE
    return [
        Figure(f"first answer from zero, p50 of {FROM_ZERO}", p50, "ms", 450),
        Figure("first answer from zero, slowest", largest, "ms", None),
        Figure("zygote of the ONNX engine, PSS", zygote, "MB", None),
    ]


def _gateway(running: Platform) -> list[Figure]:
    """The same requests through the gateway and to the replica itself, in turn, over kept connections."""
    import http.client

    running.knodel("deploy", "-f", _written(running, "warm", minReplicas=1))
    through, direct = running.connection(), http.client.HTTPConnection(*running.replica_address("warm"), timeout=60)
    for connection in (through, direct):
        for _ in range(50):
            infer(connection, "warm", BODY)
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * PAIRS):
        by_gateway = number % 2 == 0
        began = time.perf_counter()
        infer(through if by_gateway else direct, "warm", BODY)
        took[by_gateway].append((time.perf_counter() - began) * 1000)
    running.knodel("delete", "warm")
    more = statistics.median(took[True]) - statistics.median(took[False])
    return [
        Figure("a request to the replica itself, p50", statistics.median(took[False]), "ms", None),
        Figure("the gateway adds, p50", more, "ms", 0.4),
    ]


def _many(running: Platform, models: int) -> list[Figure]:
    running.knodel("delete", "first")
    before = _platform_memory(running)
    documents = [_model(f"many-{number:03}", scaleToZeroAfter="1s") for number in range(models)]
    path = running.state.parent / "many.yaml"
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    began = time.perf_counter()
    running.knodel("deploy", "-f", str(path), "--timeout", "300s")
    seconds = time.perf_counter() - began
    _until(lambda: not any(_replicas_of(model) for model in running.models()), pause=1.0)
    grown = (_platform_memory(running) - before) / models / MEGABYTE
    return [
        Figure(f"{models} models deployed, each started once", seconds, "s", 60 * models / MANY),
        Figure("per idle model, PSS of the platform", grown, "MB", 1),
    ]


def _idle(running: Platform) -> list[Figure]:
    before = cpu_by_pid(running.state)
    time.sleep(IDLE_FOR)
    after = cpu_by_pid(running.state)
    used = sum(after[pid] - before[pid] for pid in before if pid in after)
    return [Figure(f"idle with {len(running.models())} models, of one core", 100 * used / IDLE_FOR, "%", 2)]


def _list(running: Platform) -> list[Figure]:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        running.knodel("list")
        took.append((time.perf_counter() - began) * 1000)
    return [Figure(f"knodel list with {len(running.models())} models, median of 5", statistics.median(took), "ms", 300)]


def _platform_memory(running: Platform) -> float:
    """PSS of all but zygotes and replicas, in bytes."""
    memory = memory_by_role(running.state)
    return sum(size for role, size in memory.items() if role not in ("zygote", "replica"))


def _first_200(running: Platform, name: str, began: float) -> float:
    connection = running.connection()
    while infer(connection, name, BODY) != 200:
        if time.perf_counter() - began > 60:
            raise SystemExit(f"{name} did not answer within 60 s")
        time.sleep(LOOK)
    return time.perf_counter() - began


def _replicas(running: Platform, name: str) -> int:
    return next(_replicas_of(model) for model in running.models() if model["metadata"]["name"] == name)


def _replicas_of(model: dict[str, object]) -> int:
    status = model.get("status")
    replicas = status.get("replicas", {}) if isinstance(status, dict) else {}
    return int(replicas.get("desired", 0)) + int(replicas.get("ready", 0)) + int(replicas.get("starting", 0))


def _until(done: Callable[[], bool], pause: float = 0.1, within: float = 120.0) -> None:
    deadline = time.monotonic() + within
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit("what was waited for did not happen within two minutes")
        time.sleep(pause)


def _model(name: str, **spec: object) -> dict[str, object]:
    uri = model_file().as_uri()
    return {
        "apiVersion": "knodel.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name},
        "spec": {"storageUri": uri, **spec},
    }


def _written(running: Platform, name: str, **spec: object) -> str:
    path = running.state.parent / f"{name}.yaml"
    path.write_text(json.dumps(_model(name, **spec)))
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
