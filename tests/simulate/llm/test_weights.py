"""Test the weights of requests from their tokens."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.simulate.llm.weights import ENOUGH, Weigher


def measured(*, knows_answers: bool = False) -> Weigher:
    """Return a weigher that measured 1 ms per prompt token and 10 ms per generated one, and answers of 101 tokens."""
    weigher = Weigher(knows_answers=knows_answers)
    for _ in range(ENOUGH):
        weigher.record(1_000, 1.0, 101, 1.0)
    return weigher


def test_all_requests_weigh_one_before_rates_are_measured() -> None:
    weigher = Weigher()
    for _ in range(ENOUGH - 1):
        weigher.record(1_000, 1.0, 101, 1.0)
    assert weigher.weigh(100_000, 4_096, 4_096) == 1.0


def test_a_request_weighs_its_seconds_relative_to_the_mean() -> None:
    weigher = measured()
    assert weigher.weigh(1_000, 4_096, 7) == 1.0  # 1 s + 1.01 s, the first one and so the mean
    assert weigher.weigh(3_010, 4_096, 7) == pytest.approx(4.02 / 3.015, abs=1e-3)


def test_the_expected_answer_is_the_limit_or_the_mean() -> None:
    short, long, endless = (measured() for _ in range(3))
    for weigher in (short, long, endless):
        weigher.weigh(1_000, 4_096, 0)
    assert short.weigh(0, 10, 0) < long.weigh(0, 1_000, 0) == endless.weigh(0, 4_096, 0)


def test_known_answers_count_with_their_length() -> None:
    weigher = measured(knows_answers=True)
    assert weigher.weigh(1_000, 16, 100) < weigher.weigh(1_000, 16, 300)


def test_the_mean_weight_is_one() -> None:
    weigher, prompts = measured(), np.random.default_rng(1).integers(1, 8_000, 2_000)
    weights = [weigher.weigh(int(prompt), 4_096, 0) for prompt in prompts]
    assert np.mean(weights[500:]) == pytest.approx(1.0, rel=0.05)
