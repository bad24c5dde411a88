"""Memory, open files and tasks (threads) of every process of a platform during a load.

Memory is anonymous memory (RssAnon). The proportional set size (PSS) also counts pages of shared libraries, so it grows
when an unrelated process ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from loadtests.bench.figure import Figure
from loadtests.bench.processes import ProcessUsage, bytes_of, processes_of, usage_of
from loadtests.simulate.chart import Point

MEGABYTE = 1024 * 1024
HOUR = 3_600.0
SETTLING = 0.3
"""Share of a run that is ignored: caches, pools and windows fill in this time."""
GROWTH = 20.0
"""Maximum memory growth of a process in MB/h. One kB for each of five requests per second would be 18."""
FEW = 4.0
"""Maximum growth of open files and tasks: just opened connections and just started threads."""
LEAST_SAMPLES = 8
"""Minimum number of samples of a process. The slope of fewer points is random."""

Samples = Sequence[tuple[float, Mapping[tuple[int, str], ProcessUsage]]]
"""(seconds, usage of each process by (pid, role))."""


def sample_processes(state: Path) -> dict[tuple[int, str], ProcessUsage]:
    """Return the usage of each process by (pid, role), without processes that end during the call."""
    found = {process: usage_of(process[0], _own) for process in processes_of(state)}
    return {process: one for process, one in found.items() if one.tasks}


def _own(pid: int) -> int:
    return bytes_of(pid, "RssAnon")


def series(samples: Samples) -> dict[tuple[int, str], list[tuple[float, ProcessUsage]]]:
    """Return the samples after the settling time of each process that ran until the last sample."""
    if not samples:
        return {}
    last, since = samples[-1][0], samples[0][0] + SETTLING * (samples[-1][0] - samples[0][0])
    found: dict[tuple[int, str], list[tuple[float, ProcessUsage]]] = {}
    for moment, processes in samples:
        for process, one in processes.items():
            if moment >= since:
                found.setdefault(process, []).append((moment, one))
    return {who: seen for who, seen in found.items() if len(seen) >= LEAST_SAMPLES and seen[-1][0] == last}


def slope(points: Sequence[Point]) -> float:
    """Return the median of the slopes between all pairs of points (the Theil–Sen estimator), which is robust to
    outliers.
    """
    x, y = (np.array(column) for column in zip(*points, strict=True))
    first, second = np.triu_indices(len(x), k=1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def growth(points: Sequence[Point]) -> float:
    """Return the difference between the medians of the last and the first third."""
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    return float(np.median(values[-third:]) - np.median(values[:third]))


def figures(samples: Samples) -> list[Figure]:
    """Return memory, memory growth, and growth of files and tasks of each process."""
    found = []
    for (pid, role), seen in sorted(series(samples).items(), key=lambda item: (item[0][1], item[0][0])):
        who = f"{role} {pid}"
        memory = [(moment, one.memory / MEGABYTE) for moment, one in seen]
        found += [
            Figure(f"{who}: memory at the end", memory[-1][1], "MB"),
            Figure(f"{who}: memory growth", slope(memory) * HOUR, "MB/h", GROWTH),
            Figure(f"{who}: growth of open files", growth([(moment, one.files) for moment, one in seen]), "", FEW),
            Figure(f"{who}: growth of tasks", growth([(moment, one.tasks) for moment, one in seen]), "", FEW),
        ]
    return found
