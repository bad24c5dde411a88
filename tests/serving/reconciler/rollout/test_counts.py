"""Counts of a version's requests."""

from __future__ import annotations

import json

import pytest

from clusters.base.latency_buckets import bucket_of, upper_edge
from serving.reconciler.rollout.judging.counts import Counts, from_json, to_json

SOME = Counts(100, 4, {-30: 50, -20: 40, -10: 6})


def test_counts_of_two_replicas_add_up() -> None:
    assert SOME.merge(Counts(10, 1, {-20: 8, 3: 1})) == Counts(110, 5, {-30: 50, -20: 48, -10: 6, 3: 1})


def test_what_came_since_an_earlier_reading_merges_to_the_later_one() -> None:
    later = Counts(130, 4, {-30: 50, -20: 65, -10: 11})
    came = later.since(SOME)
    assert came == Counts(30, 0, {-20: 25, -10: 5})
    assert SOME.merge(came) == later


def test_times_between_tokens_are_totals_too() -> None:
    some, later = Counts(5, 0, {-8: 5}, between_tokens={-40: 4}), Counts(9, 0, {-8: 9}, between_tokens={-40: 4, -39: 3})
    assert later.since(some) == Counts(4, 0, {-8: 4}, between_tokens={-39: 3})
    assert some.merge(later.since(some)) == later
    assert from_json(json.loads(json.dumps(to_json(later)))) == later
    assert to_json(later)["interTokenLatency"] == {"-40": 4, "-39": 3}
    assert later.tokens.quantile_bucket(0.95) == -39


def test_totals_that_fell_count_as_nothing_new() -> None:
    assert Counts(2, 1, {-30: 1}).since(SOME) == Counts()


def test_counts_survive_their_json() -> None:
    assert from_json(json.loads(json.dumps(to_json(SOME)))) == SOME
    assert to_json(Counts()) == {"requests": 0, "errors": 0, "latency": {}}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, Counts()),
        ("many", Counts()),
        ({"requests": "7", "errors": True, "latency": [1]}, Counts()),
        ({"requests": 7, "errors": 9}, Counts(7, 7)),
        ({"requests": -7, "latency": {"-3": 2, "x": 3, "4": -1, "5": 0, "6": 1.5}}, Counts(latency={-3: 2})),
    ],
)
def test_what_is_no_count_is_read_as_none(value: object, read: Counts) -> None:
    assert from_json(value) == read


def test_the_quantile_is_the_upper_edge_of_its_bucket() -> None:
    assert SOME.quantile_bucket(0.5) == -30
    assert SOME.quantile_bucket(0.53) == -20
    assert SOME.quantile(0.95) == upper_edge(-10)
    assert SOME.slower_than(-20) == 6


@pytest.mark.parametrize("none", [Counts(), Counts(5, 5), Counts(5, 5, {-30: 0})])
def test_without_answers_there_is_no_quantile(none: Counts) -> None:
    assert none.quantile(0.95) is None


def test_of_one_answer_every_quantile_is_that_one() -> None:
    one = Counts(1, 0, {bucket_of(0.2): 1})
    assert one.quantile_bucket(0.5) == one.quantile_bucket(0.999) == bucket_of(0.2)
