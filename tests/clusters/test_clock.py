"""Clocks when an administrator sets the machine's time: intervals of a steady clock continue."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from clusters.base.clock import SteadyClock, seconds_of_machine
from tests.support.clock import SteppedClock


class SetClock(SteppedClock):
    """A stepped clock whose wall time somebody sets."""

    ahead = timedelta()

    def now(self) -> datetime:
        """Wall time, as it was set."""
        return super().now() + self.ahead


@pytest.mark.fault("K9")
@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1), timedelta(days=30), timedelta(days=-30)])
def test_a_steady_clock_goes_on_when_the_machines_clock_is_set(jump: timedelta) -> None:
    machine = SetClock()
    steady = SteadyClock(machine, machine.monotonic)
    began = steady.now()
    assert began == machine.now()
    machine.step(10)
    machine.ahead = jump
    machine.step(5)
    assert steady.now() - began == timedelta(seconds=15)


def test_its_other_times_are_those_of_the_clock_it_is_made_over() -> None:
    machine = SteppedClock()
    steady = SteadyClock(machine, lambda: 7.0)
    machine.step(3)
    assert steady.monotonic() == 3
    assert steady.now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_the_seconds_of_the_machine_count_its_sleep_too() -> None:
    assert seconds_of_machine() >= time.clock_gettime(time.CLOCK_MONOTONIC) - 1
