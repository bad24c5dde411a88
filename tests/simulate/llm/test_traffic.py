"""Test that traffic keeps the requests of its traces."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.simulate.llm.traffic import RAMP, TRAFFIC, Traffic, make_traffic, overlay, with_bursts
from loadtests.simulate.trace import Trace

TRACE = Trace("few", np.array([0.0, 1.0, 9.0]), np.array([10.0, 20.0, 30.0]), np.array([0.0, 17.0, 64.0]))


def test_copies_keep_every_request_and_its_tokens() -> None:
    found = overlay(TRACE, 5, 10.0, np.random.default_rng(1))
    assert sorted(found.prompt.tolist()) == [10] * 5 + [20] * 5 + [30] * 5
    assert (np.diff(found.arrivals) >= 0.0).all()
    assert set(found.generated[found.prompt == 30].tolist()) == {64}


def test_the_limit_of_an_answer_is_the_next_power_of_two() -> None:
    found = overlay(TRACE, 1, 10.0, np.random.default_rng(1))
    assert sorted(found.max_tokens.tolist()) == [16, 32, 64]


def test_bursts_add_requests_to_the_same_ones() -> None:
    base, more = (make(TRACE, 50, 600.0, np.random.default_rng(2)) for make in (overlay, with_bursts))
    assert len(more.arrivals) > len(base.arrivals)
    assert np.isin(base.arrivals, more.arrivals).all()


def test_the_rate_rises_from_zero() -> None:
    steady = np.linspace(0.0, 2 * RAMP, 4_000, endpoint=False)
    traffic = Traffic("steady", steady, *(np.ones(4_000, np.int64) for _ in range(2)))
    found = traffic.ramped(np.random.default_rng(1))
    assert (found.arrivals >= RAMP).sum() == 2_000
    assert (found.arrivals < RAMP / 2).sum() == pytest.approx(250, rel=0.2)


@pytest.mark.parametrize("kind", list(TRAFFIC))
def test_a_seed_gives_the_same_traffic_and_another_one_does_not(kind: str) -> None:
    first, again, other = (make_traffic(kind, 60.0, seed) for seed in (1, 1, 2))
    assert first.arrivals.tolist() == again.arrivals.tolist()
    assert first.arrivals.tolist() != other.arrivals.tolist()
