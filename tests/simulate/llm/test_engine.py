"""Test the engine's steps, calculated by hand, and its published speed."""

from __future__ import annotations

import math

import pytest

from loadtests.simulate.llm.engine import Engine, Request, Speed

ROUND = Speed(step=1.0, per_request=0.0, per_cached=0.0, per_prompt=0.0, cache=1_000, chunk=100)
"""Steps of one second."""


def ends(engine: Engine, until: float = math.inf) -> dict[int, tuple[float, float]]:
    """Run the engine; return the times of each request's first and last token."""
    found = {}
    while engine.end <= until and not math.isinf(engine.end):
        now = engine.end
        for request in engine.finish().last:
            found[request.number] = (request.first, now)
    return found


def test_a_prompt_takes_one_step_per_chunk_and_each_further_token_one() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=250, generated=3), 0.0)
    assert ends(engine) == {0: (3.0, 5.0)}
    assert (engine.active, engine.kv_share, engine.weight) == (0, 0.0, 0.0)


def test_a_request_joins_the_batch_at_the_end_of_the_current_step() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=10, generated=10), 0.0)
    engine.finish()
    engine.add(Request(1, prompt=10, generated=1), 2.5)
    assert ends(engine) == {1: (4.0, 4.0), 0: (1.0, 10.0)}


def test_requests_without_a_slot_wait() -> None:
    engine = Engine(1, ROUND)
    engine.add(Request(0, prompt=10, generated=2), 0.0)
    engine.add(Request(1, prompt=10, generated=2), 0.5)
    assert (engine.active, engine.waiting) == (2, 1)
    assert ends(engine) == {0: (1.0, 2.0), 1: (3.0, 4.0)}


def test_requests_without_room_in_the_cache_wait() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=90, generated=510), 0.0)
    engine.add(Request(1, prompt=90, generated=400), 0.0)
    assert ends(engine)[1][0] == 511.0


def test_a_request_larger_than_the_cache_runs_alone() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=2_000, generated=1), 0.0)
    assert ends(engine) == {0: (20.0, 20.0)}


def test_the_cache_holds_prompts_and_generated_tokens() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=99, generated=10), 0.0)
    engine.finish()
    assert engine.kv_share == 0.1


def test_the_weight_is_that_of_unfinished_requests() -> None:
    engine = Engine(4, ROUND)
    engine.add(Request(0, prompt=10, generated=1, weight=2.0), 0.0)
    engine.add(Request(1, prompt=10, generated=5, weight=0.5), 0.0)
    assert engine.weight == 2.5
    engine.finish()
    assert engine.weight == 0.5


@pytest.mark.parametrize(
    ("requests", "prompt", "median"), [(1, 128, 0.010), (16, 2_048, 0.020), (32, 2_048, 0.031), (64, 128, 0.014)]
)
def test_the_time_of_a_token_is_the_published_one(requests: int, prompt: int, median: float) -> None:
    engine = Engine(64, Speed())
    for number in range(requests):
        engine.add(Request(number, prompt, generated=128), 0.0)
    found = ends(engine)
    last_start = max(first for first, _ in found.values())
    end = max(last for _, last in found.values())
    assert (end - last_start) / 127 == pytest.approx(median, rel=0.12)


def test_the_first_token_of_a_prompt_takes_the_published_time() -> None:
    engine = Engine(64, Speed())
    engine.add(Request(0, prompt=2_048, generated=1), 0.0)
    assert engine.end == pytest.approx(0.139, rel=0.05)
