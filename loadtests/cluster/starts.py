"""Starts from zero, alternately by each subject, and their aims."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from examples.magika_client import infer_request
from loadtests.bench.figure import Figure
from loadtests.cluster.bench import Bench, until
from loadtests.cluster.subjects import POOL_SIZE, SUBJECTS, WARM, Subject

CALM = 1.0  # s at zero before a start, so that terminating Pods do not affect it
LOOK = 1.0
"""Seconds between two checks of the kubelet on its containers (`genericPlegRelistPeriod`).

The kubelet detects a started container at the next check. The previous response comes right after such a check, so each
start waits for a random part of the period. Otherwise each subject would always begin at the same time between two
checks.
"""
MS = 1000.0
BODY = infer_request(Path(__file__).read_bytes())


async def starts(bench: Bench, count: int) -> dict[Subject, list[float]]:
    """Measure `count` starts of each subject, alternately, in ms."""
    took: dict[Subject, list[float]] = {subject: [] for subject in SUBJECTS}
    chance = Random(count)
    for number in range(count):
        for subject in SUBJECTS:
            await until(partial(bench.at_zero, subject))
            await until(partial(bench.pool_has, POOL_SIZE))
            await asyncio.sleep(CALM + chance.uniform(0.0, LOOK))
            took[subject].append(await bench.ask(subject, BODY) * MS)
        line = "  ".join(f"{subject.label} {times[-1]:7.1f} ms" for subject, times in took.items())
        print(f"{number + 1:3}  {line}", flush=True)
    return took


def report(took: dict[Subject, list[float]]) -> list[Figure]:
    """Print the table and the ratios with their aims; return these figures."""
    print(f"\n{'':26} {'p50':>9} {'p95':>9} {'least':>9} {'most':>9}  ms")
    for subject, times in took.items():
        figures = (statistics.median(times), _p95(times), min(times), max(times))
        print(f"{subject.label:26} " + " ".join(f"{figure:9.1f}" for figure in figures))
    kpa, cold, warm = (statistics.median(took[subject]) for subject in SUBJECTS)
    checks = [
        Figure("warm, p50", warm, "ms", 100.0),
        Figure("warm, p95", _p95(took[WARM]), "ms", 250.0),
        Figure("Knative's class cold ÷ warm, p50", kpa / warm, "x", 12.0, least=True),
        Figure("Knodel's class cold ÷ Knative's class cold, p50", cold / kpa, "x", 1.1),
    ]
    print(*checks, sep="\n")
    return [*_of_each(took), *checks]


def _of_each(took: dict[Subject, list[float]]) -> list[Figure]:
    return [
        Figure(f"from zero: {subject.label}, {what}", value(times), "ms")
        for what, value in (("p50", statistics.median), ("p95", _p95))
        for subject, times in took.items()
    ]


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
