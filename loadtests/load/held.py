"""What every process of a platform holds while a load goes on: memory, open files, tasks (threads).

Memory is what is no file's (RssAnon): pages of libraries count for all who map them, strangers too, in what /proc calls
proportional (PSS), so that it grows when a stranger ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from loadtests.bench.figure import Figure
from loadtests.bench.processes import Held, bytes_of, held, processes_of
from loadtests.simulate.chart import Point

MEGABYTE = 1024 * 1024
HOUR = 3_600.0
SETTLING = 0.3
"""Share of a run in which caches, pools and windows fill: left out."""
GROWTH = 20.0
"""MB an hour of one process; 1 kB for each of five requests a second would be 18."""
FEW = 4.0
"""Files and tasks more at the end: connections that are just open, threads that have just begun."""
LEAST_LOOKS = 8
"""At a process, or nothing is said of it: a slope of a few points is chance."""

Looks = Sequence[tuple[float, Mapping[tuple[int, str], Held]]]
"""(seconds, what each process (pid, role) holds)."""


def held_now(state: Path) -> dict[tuple[int, str], Held]:
    """By process; those that end meanwhile are left out."""
    found = {process: held(process[0], _own) for process in processes_of(state)}
    return {process: one for process, one in found.items() if one.tasks}


def _own(pid: int) -> int:
    return bytes_of(pid, "RssAnon")


def series(looks: Looks) -> dict[tuple[int, str], list[tuple[float, Held]]]:
    """By process, those that were there from the end of the settling to the last look."""
    if not looks:
        return {}
    last, since = looks[-1][0], looks[0][0] + SETTLING * (looks[-1][0] - looks[0][0])
    found: dict[tuple[int, str], list[tuple[float, Held]]] = {}
    for moment, processes in looks:
        for process, one in processes.items():
            if moment >= since:
                found.setdefault(process, []).append((moment, one))
    return {who: seen for who, seen in found.items() if len(seen) >= LEAST_LOOKS and seen[-1][0] == last}


def slope(points: Sequence[Point]) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen): single outliers do not move it."""
    x, y = (np.array(column) for column in zip(*points, strict=True))
    first, second = np.triu_indices(len(x), k=1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def growth(points: Sequence[Point]) -> float:
    """How much more the last third has than the first, by their medians."""
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    return float(np.median(values[-third:]) - np.median(values[:third]))


def figures(looks: Looks) -> list[Figure]:
    """By process: how its memory grows, and how many files and tasks more it has."""
    found = []
    for (pid, role), seen in sorted(series(looks).items(), key=lambda item: (item[0][1], item[0][0])):
        who = f"{role} {pid}"
        memory = [(moment, one.memory / MEGABYTE) for moment, one in seen]
        found += [
            Figure(f"{who}: memory at the end", memory[-1][1], "MB"),
            Figure(f"{who}: memory grows by", slope(memory) * HOUR, "MB/h", GROWTH),
            Figure(f"{who}: files more", growth([(moment, one.files) for moment, one in seen]), "", FEW),
            Figure(f"{who}: tasks more", growth([(moment, one.tasks) for moment, one in seen]), "", FEW),
        ]
    return found
