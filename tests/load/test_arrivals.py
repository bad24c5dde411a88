"""Test the schedules of requests."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.load.arrivals import bursts, diurnal, replay, steady
from loadtests.simulate.trace import Trace, open_trace


def test_a_steady_load_has_equal_gaps() -> None:
    due = steady(4.0, 2.0)
    assert due == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75])


def test_bursts_come_at_the_end_of_each_stretch() -> None:
    due = bursts(10.0, 100.0, 20.0, every=10.0, length=2.0)
    by_second = np.histogram(due, bins=20, range=(0.0, 20.0))[0]
    assert by_second == pytest.approx([10] * 8 + [100] * 2 + [10] * 8 + [100] * 2, abs=1)


def test_a_day_has_its_noon_in_the_middle_and_its_nights_at_both_ends() -> None:
    due = diurnal(0.0, 100.0, 60.0)
    by_second = np.histogram(due, bins=60, range=(0.0, 60.0))[0]
    assert len(due) == pytest.approx(3000, abs=1)  # half of the peak on average
    assert by_second[:2].sum() + by_second[-2:].sum() <= 4
    assert by_second[29:31] == pytest.approx([100, 100], abs=1)


def test_schedules_are_in_order_and_end_in_time() -> None:
    for due in (steady(7.0, 3.0), bursts(1.0, 9.0, 7.0, 3.0, 1.0), diurnal(1.0, 9.0, 7.0, days=2.0)):
        assert (np.diff(due) > 0).all()
        assert due[0] == 0.0
        assert due[-1] < 7.0


def test_a_replayed_trace_keeps_the_proportions_of_its_pauses() -> None:
    arrivals = np.array([0.0, 1.0, 1.5, 4.0, 50.0])
    zeros = np.zeros(5)
    due = replay(Trace("t", arrivals, zeros, zeros), seconds=2.0, rate=2.0)
    assert due == pytest.approx([0.0, 0.5, 0.75])  # the fourth request is due when it is over


def test_a_real_trace_has_the_requested_rate_and_its_bursts() -> None:
    due = replay(open_trace("code"), seconds=30.0, rate=20.0)
    by_second = np.histogram(due, bins=30, range=(0.0, 30.0))[0]
    assert len(due) == pytest.approx(600, abs=2)
    assert by_second.max() > 3 * by_second.mean()


def test_a_trace_that_is_too_short_ends_early() -> None:
    arrivals = np.array([0.0, 1.0])
    due = replay(Trace("t", arrivals, arrivals, arrivals), seconds=10.0, rate=1.0)
    assert due == pytest.approx([0.0, 2.0])  # two of ten requests: a fifth of the time
