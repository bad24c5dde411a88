"""Test the growth of processes: measured by slope, robust to start-up and outliers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadtests.bench.processes import ProcessUsage
from loadtests.load.process_usage import (
    FEW,
    GROWTH,
    MEGABYTE,
    Samples,
    figures,
    growth,
    sample_processes,
    series,
    slope,
)

LOOKS = 120  # one every five seconds
PLATFORM = (7, "platform")


def samples(memory: float = 0.0, files: float = 0.0, ended: int | None = None) -> Samples:
    """A process that grows by so many MB an hour and files an hour; it ends at a look."""
    generator = np.random.default_rng(1)
    seen: list[tuple[float, dict[tuple[int, str], ProcessUsage]]] = []
    for number in range(LOOKS):
        hours = number * 5.0 / 3600.0
        settling = 30.0 * min(number, 20) / 20  # MB in the first minutes, as caches and pools do
        megabytes = 100.0 + settling + memory * hours + generator.normal(0, 0.2)
        one = ProcessUsage(round(megabytes * MEGABYTE), 20 + round(files * hours), 9)
        seen.append((number * 5.0, {PLATFORM: one} if ended is None or number < ended else {}))
    return seen


def by_name(found: Samples) -> dict[str, tuple[float, bool]]:
    return {figure.what: (figure.value, figure.missed) for figure in figures(found)}


def test_growth_at_the_start_is_not_a_leak() -> None:
    value, missed = by_name(samples())["platform 7: memory growth"]
    assert abs(value) < GROWTH / 4
    assert not missed


def test_a_leak_of_twice_the_limit_is_detected_in_ten_minutes() -> None:
    value, missed = by_name(samples(memory=2 * GROWTH))["platform 7: memory growth"]
    assert value == pytest.approx(2 * GROWTH, rel=0.2)
    assert missed


def test_files_that_are_never_closed_are_detected() -> None:
    lost = 2 * FEW * 3600.0 / (LOOKS * 5.0 * (1.0 - 0.3) * 2 / 3)  # an hour, so that `growth` sees twice the bound
    assert by_name(samples(files=lost))["platform 7: growth of open files"][1]
    assert not by_name(samples())["platform 7: growth of open files"][1]


def test_a_process_that_ended_is_not_judged() -> None:
    assert figures(samples(ended=LOOKS - 1)) == []
    assert series([]) == {}


def test_a_single_outlier_moves_neither_slope_nor_growth() -> None:
    points = [(float(number), 1.0) for number in range(20)]
    points[10] = (10.0, 1e6)
    assert slope(points) == 0.0
    assert growth(points) == 0.0


def test_a_real_process_is_found_by_its_state_folder(tmp_path: Path) -> None:
    sleeper = "import sys; print('up', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", sleeper, str(tmp_path), "activator"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = sample_processes(tmp_path)[process.pid, "activator"]
        process.communicate()
    assert 1.0 < found.memory / MEGABYTE < 200.0
    assert (found.files, found.tasks) == (3, 1)
