"""Benchmark of starts to the first 200: by exec, with a bare application and the peers, and by fork from a zygote."""

from __future__ import annotations

import compileall
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import clusters
import serving
from loadtests.bench.figure import Figure
from loadtests.bench.servers.contest import Plan, start
from loadtests.bench.servers.load import Load
from loadtests.bench.servers.server import Ports
from loadtests.bench.servers.subjects import (
    BARE_LABEL,
    KNODEL_LABEL,
    Subject,
    knodel_arguments,
    knodel_environment,
)
from loadtests.bench.servers.zygote import Zygote
from serving.modelserver.pool.preloading import modules_for
from tests.support.ports import free_ports

PER_ROUND = 3  # starts of each server
OVER_BARE = 1.4
FORKED_MS = 150


def figures(model: Path, load: Load, subjects: Sequence[Subject], plan: Plan, folder: Path) -> list[Figure]:
    """Yield the figures. `model`: the ONNX file of all servers; `subjects`: servers that are started by exec."""
    compile_ours()
    count = plan.rounds * PER_ROUND
    took = by_exec(subjects, load, count, plan.server_core, folder)
    forked = by_fork(model, load, count, plan.server_core, folder)
    forks = f"forked from the zygote to first 200, p50 of {count}"
    medians = {label: statistics.median(times) * 1000 for label, times in took.items()}
    ratios = [ours / bare for ours, bare in zip(took[KNODEL_LABEL], took[BARE_LABEL], strict=True)]
    return [
        *(Figure(f"exec to first 200, p50 of {count}: {label}", value, "ms") for label, value in medians.items()),
        Figure(f"  {KNODEL_LABEL} to {BARE_LABEL}", statistics.median(ratios), "x", OVER_BARE),
        Figure(forks, statistics.median(forked) * 1000, "ms", FORKED_MS),
        Figure("forked from the zygote, maximum", max(forked) * 1000, "ms"),
    ]


def compile_ours() -> None:
    """Compile byte code like an installer. A checkout without byte code would be compiled at each start."""
    for package in (clusters, serving):
        compileall.compile_dir(package.__path__[0], quiet=1)


def by_exec(
    subjects: Sequence[Subject], load: Load, count: int, core: int, folder: Path
) -> Mapping[str, Sequence[float]]:
    """Return the seconds of each start by subject, alternately."""
    took: dict[str, list[float]] = {subject.label: [] for subject in subjects}
    for _ in range(count):
        for subject in subjects:
            with start(subject, Ports(*free_ports(3)), folder, core) as server:
                took[subject.label].append(server.first_answer(load)[0])
    return took


def by_fork(model: Path, load: Load, count: int, core: int, folder: Path) -> Sequence[float]:
    """Return the seconds of each start from one zygote."""
    arguments = knodel_arguments(model)[2:]
    took = []
    with Zygote(folder, modules_for(arguments), core) as zygote:
        for _ in range(count):
            ports = Ports(*free_ports(3))
            took.append(zygote.first_answer(arguments, knodel_environment(ports), ports.http, load))
    return took
