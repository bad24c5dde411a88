"""Averages over time buckets."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.metrics.window import BUCKETS, Averages, Windows

ROW = np.array([0])


def record(windows: Windows, start: float, end: float, work: float, missing: float = 0.0) -> None:
    windows.record(ROW, np.array([start]), end, np.array([work]), np.array([missing]))


def average(windows: Windows, now: float, window: float = 60.0) -> Averages:
    return windows.average(ROW, np.array([window]), now)


def test_without_a_reading_there_is_no_average() -> None:
    found = average(Windows(1), 100.0)
    assert math.isnan(found.work[0]) and found.covered[0] == 0.0


def test_an_average_is_over_the_time_that_readings_cover() -> None:
    windows = Windows(1)
    record(windows, 10.0, 11.0, 4.0)
    record(windows, 20.0, 22.0, 1.0)
    found = average(windows, 22.0)
    assert found.work[0] == pytest.approx(2.0)
    assert found.covered[0] == pytest.approx(3.0)


def test_a_reading_is_spread_over_the_buckets_that_it_overlaps() -> None:
    windows = Windows(1)
    record(windows, 10.5, 13.5, 2.0, missing=1.0)
    assert average(windows, 13.6, window=1.0).covered[0] == pytest.approx(0.5)
    assert average(windows, 13.6, window=2.0).covered[0] == pytest.approx(1.5)
    assert average(windows, 13.6, window=2.0).missing[0] == pytest.approx(1.0)


def test_what_is_older_than_the_window_is_gone() -> None:
    windows = Windows(1)
    record(windows, 0.0, 10.0, 8.0)
    assert average(windows, 65.0).covered[0] == pytest.approx(5.0)
    assert math.isnan(average(windows, 80.0).work[0])


def test_a_silence_longer_than_the_window_leaves_nothing_of_the_time_before() -> None:
    windows = Windows(1)
    record(windows, 0.0, 60.0, 8.0)
    record(windows, 500.0, 501.0, 2.0)
    found = average(windows, 501.0)
    assert found.work[0] == pytest.approx(2.0) and found.covered[0] == pytest.approx(1.0)


def test_a_reading_longer_than_the_window_fills_it_once() -> None:
    windows = Windows(1)
    record(windows, 0.0, 1_000.5, 3.0)
    found = average(windows, 1_000.5)
    assert found.work[0] == pytest.approx(3.0) and 59.0 <= found.covered[0] <= 60.0


def test_longer_windows_have_coarser_buckets() -> None:
    windows = Windows(1)
    windows.reset(0, 600.0)
    for second in range(600):
        record(windows, float(second), second + 1.0, 1.0 if second < 300 else 3.0)
    assert average(windows, 600.0, window=600.0).work[0] == pytest.approx(2.0)
    assert average(windows, 600.0, window=60.0).work[0] == pytest.approx(3.0)


def test_rows_do_not_touch_each_other_and_new_ones_are_empty() -> None:
    windows = Windows(1)
    record(windows, 0.0, 1.0, 5.0)
    windows.grow(3)
    rows = np.array([2, 0])
    windows.record(np.array([2]), np.array([1.0]), 2.0, np.array([7.0]), np.array([0.0]))
    found = windows.average(rows, np.array([60.0, 60.0]), 2.0)
    assert found.work.tolist() == [7.0, 5.0]


def test_averages_are_as_exact_after_days_as_at_first() -> None:
    windows = Windows(1)
    for second in range(20_000):
        record(windows, 1e6 + second, 1e6 + second + 1.0, 1_000.0 if second < 19_000 else 0.5)
    assert average(windows, 1_020_000.0).work[0] == pytest.approx(0.5, rel=1e-5)
    assert average(windows, 1_020_000.0, window=6.0).work[0] == pytest.approx(0.5, rel=1e-5)


@given(st.lists(st.tuples(st.floats(0.01, 20), st.floats(0, 100), st.booleans()), min_size=1, max_size=60))
def test_buckets_agree_with_sums_over_the_same_intervals(steps: list[tuple[float, float, bool]]) -> None:
    windows = Windows(1)
    now, told = 1_000.0, []
    for length, work, heard in steps:
        if heard:
            record(windows, now, now + length, work)
            told.append((now, now + length, work))
        now += length
    oldest = math.ceil(now) - BUCKETS  # the window begins with a whole bucket
    parts = [(max(0.0, end - max(start, oldest)), work) for start, end, work in told]
    covered = sum(seconds for seconds, _ in parts)
    found = average(windows, now)
    assert found.covered[0] == pytest.approx(covered, abs=1e-2)
    if covered > 0.1:
        expected = sum(seconds * work for seconds, work in parts) / covered
        assert found.work[0] == pytest.approx(expected, rel=1e-2, abs=0.2)
