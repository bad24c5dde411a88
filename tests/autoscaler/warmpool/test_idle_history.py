"""The idle times of a model as a histogram with decay."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.warmpool.sizing.idle_history import BUCKETS, EDGES, KEPT, IdleHistory, bucket_of, counts_of


@given(st.floats(0.0, 1e9))
def test_an_idle_time_is_counted_between_the_edges_of_its_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert EDGES[bucket] <= seconds * (1 + 1e-9)
    assert bucket == BUCKETS or seconds <= EDGES[bucket + 1] * (1 + 1e-9)


@pytest.mark.parametrize("senseless", [-1.0, float("nan")])
def test_what_is_no_length_counts_as_none(senseless: float) -> None:
    assert bucket_of(senseless) == 0


def test_a_history_is_of_the_same_size_however_long_it_is() -> None:
    history = IdleHistory()
    for number in range(5_000):
        history.record(float(number), 1.0)
    assert history.counts.nbytes <= 300
    assert history.total == pytest.approx(KEPT, rel=1e-6)
    assert float(history.counts.sum()) == pytest.approx(KEPT, rel=1e-3)


def test_former_habits_are_forgotten() -> None:
    history = IdleHistory()
    for _ in range(KEPT):
        history.record(5.0, 1.0)
    for _ in range(3 * KEPT):
        history.record(500.0, 1.0)
    assert history.counts[bucket_of(500.0)] / history.counts.sum() > 0.9
    assert history.rate(0.0) == pytest.approx(1 / 501.0, rel=0.1)


def test_the_rate_counts_work_and_the_idle_time_that_lasts() -> None:
    history = IdleHistory()
    for _ in range(10):
        history.record(8.0, 2.0)
    assert history.rate(0.0) == pytest.approx(0.1, rel=1e-3)
    assert history.rate(900.0) < 0.011


def test_a_first_request_tells_how_often_but_not_how_long() -> None:
    history = IdleHistory()
    assert history.rate(0.0) == 0.0
    history.record_first(100.0)
    assert history.rate(0.0) == pytest.approx(0.01)
    assert history.counts.sum() == 0.0


def test_the_rate_of_a_random_stream_is_found() -> None:
    source, history = random.Random(1), IdleHistory()
    for _ in range(2_000):
        history.record(source.expovariate(0.05), 0.0)
    assert history.rate(0.0) == pytest.approx(0.05, rel=0.2)


def test_histories_side_by_side_have_a_row_each() -> None:
    one, other = IdleHistory(), IdleHistory()
    one.record(3.0, 0.0)
    assert counts_of([one, other]).sum(axis=1).tolist() == [1.0, 0.0]
    assert counts_of([]).shape == (0, BUCKETS + 1)
