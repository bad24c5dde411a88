"""Differences of the token totals of replicas: from the start of a replica, over restarts, within bounds."""

from __future__ import annotations

import pytest

from autoscaler.metrics.stat import Sample, Tokens
from autoscaler.usage.tokens import FIRST_READING, MOST_A_SECOND, TokenReadings

POD = "default/a"
TICK = 0.5


def reading(at: float, *tokens: float) -> dict[str, Sample]:
    return {POD: Sample(at, 0.0, 0.0, 0.0, 0.0, tokens=Tokens(*tokens) if tokens else None)}


@pytest.fixture
def fresh() -> TokenReadings:
    """Return the readings of a revision whose only Pod has come after the account was opened."""
    made = TokenReadings()
    made.watch([])
    made.watch([POD])
    return made


def test_a_new_replica_counts_from_its_start(fresh: TokenReadings) -> None:
    assert fresh.growth(reading(0.0, 7, 3)) == (7, 3)
    assert fresh.growth(reading(0.0, 7, 3)) == (0, 0)  # the same reading again: no other came
    assert fresh.growth(reading(1.0, 14, 3)) == (7, 0)


def test_a_replica_older_than_the_account_counts_from_its_first_reading() -> None:
    readings = TokenReadings()
    readings.watch([POD])
    assert readings.growth(reading(0.0, 700, 300)) == (0, 0)
    assert readings.growth(reading(1.0, 710, 302)) == (10, 2)


def test_a_replica_that_was_not_ready_for_a_while_goes_on(fresh: TokenReadings) -> None:
    fresh.growth(reading(0.0, 7, 3))
    assert fresh.growth({}) == (0, 0)
    fresh.watch([POD])
    assert fresh.growth(reading(9.0, 8, 4)) == (1, 1)


def test_a_pod_is_forgotten_once_it_is_gone_and_has_no_reading(fresh: TokenReadings) -> None:
    fresh.growth(reading(0.0, 7, 3))
    fresh.watch([])
    assert fresh.growth(reading(0.0, 7, 3)) == (0, 0)  # readings outlive the Pod for a moment
    fresh.growth({})
    fresh.watch([POD])
    assert fresh.growth(reading(2.0, 7, 3)) == (7, 3)


@pytest.mark.parametrize("restarted", [(2, 1), (900, 1), (2, 400)])
def test_a_process_that_started_again_begins_from_zero(fresh: TokenReadings, restarted: tuple[float, float]) -> None:
    fresh.growth(reading(0.0, 700, 300))
    assert fresh.growth(reading(1.0, *restarted)) == restarted


def test_growth_is_bounded_by_the_time_it_took(fresh: TokenReadings) -> None:
    assert fresh.growth(reading(0.0, 1e15, 1e15)) == (MOST_A_SECOND * FIRST_READING,) * 2
    fresh.growth(reading(1.0, 0, 0))
    assert fresh.growth(reading(1.0 + TICK, 1e15, 5)) == (MOST_A_SECOND * TICK, 5)


def test_a_page_without_tokens_counts_as_nothing(fresh: TokenReadings) -> None:
    assert fresh.growth(reading(0.0)) == (0, 0)
    fresh.growth(reading(1.0, 7, 3))
    assert fresh.growth(reading(2.0)) == (0, 0)  # another page answers, such as that of queue-proxy
    assert fresh.growth(reading(3.0, 8, 3)) == (1, 0)
