"""Requests of revisions from the totals of their replicas: each rule has its test."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import (
    CRASHED,
    BadReading,
    Reading,
    Seen,
    answered_since,
    parse_reading,
    remembered,
)

OLD, NEW = "m-00001", "m-00002"
TEN, THIRTY = Counts(10, 1, {-30: 9}), Counts(30, 2, {-30: 20, -20: 8})


def told(totals: Counts, process: str = "p", revision: str = OLD) -> Reading:
    return Reading(revision, process, totals)


def looks(*seen: Seen) -> list[dict[str, Counts]]:
    """What is said at each of these looks, one after the other; all replicas stay there."""
    former: Seen | None = None
    said = []
    for one in seen:
        said.append(dict(answered_since(former, one)))
        former = remembered(former, one, {*one, *(former or ())})
    return said


def test_the_first_look_only_notes_where_replicas_stand() -> None:
    assert looks({"a": told(TEN)}, {"a": told(THIRTY)}) == [{OLD: Counts()}, {OLD: THIRTY.since(TEN)}]


def test_a_replica_that_came_since_counts_from_nothing() -> None:
    assert looks({}, {"a": told(TEN)}) == [{}, {OLD: TEN}]


def test_replicas_of_a_revision_add_up_and_revisions_stay_apart() -> None:
    second = {"a": told(TEN), "b": told(THIRTY), "c": told(TEN, revision=NEW)}
    assert looks({}, second)[1] == {OLD: TEN.merge(THIRTY), NEW: TEN}


def test_a_silence_loses_nothing() -> None:
    assert looks({"a": told(TEN)}, {"a": None}, {"a": told(THIRTY)})[1:] == [{}, {OLD: THIRTY.since(TEN)}]


def test_who_was_silent_at_the_first_look_is_noted_at_the_second() -> None:
    assert looks({"a": None}, {"a": told(TEN)}, {"a": told(THIRTY)})[1:] == [
        {OLD: Counts()},
        {OLD: THIRTY.since(TEN)},
    ]


def test_who_came_silent_counts_from_nothing_all_the_same() -> None:
    assert looks({}, {"a": None}, {"a": told(TEN)})[2] == {OLD: TEN}


FLYING = replace(TEN, pending={-30: 7})


@pytest.mark.parametrize("before", [(TEN, THIRTY), (TEN, FLYING), (FLYING,)])
def test_a_process_that_served_the_split_and_ended_counts_as_one_failure(before: tuple[Counts, ...]) -> None:
    """The totals of the process after it begin at nothing, though they may not fall."""
    after = told(THIRTY, process="q")
    again = looks(*({"a": told(one)} for one in before), {"a": None}, {"a": after}, {"a": after})
    assert again[-2:] == [{OLD: THIRTY.merge(CRASHED)}, {OLD: Counts()}]
    assert again[-2][OLD].errors == THIRTY.errors + 1


def test_a_process_that_came_since_and_answered_counts_as_one_failure() -> None:
    assert looks({}, {"a": told(TEN)}, {"a": told(Counts(), process="q")})[2] == {OLD: CRASHED}


@pytest.mark.parametrize("before", [(Counts(),), (TEN,), (TEN, TEN), (TEN, THIRTY, THIRTY)])
def test_a_process_that_ended_without_requests_of_the_split_is_no_failure(before: tuple[Counts, ...]) -> None:
    """A request to a tag ended it, or the node."""
    restarted = {"a": told(Counts(), process="q")}
    assert looks(*({"a": told(one)} for one in before), {"a": None}, restarted)[-1] == {OLD: Counts()}


def test_who_is_gone_is_forgotten() -> None:
    assert remembered({"a": told(TEN), "b": None}, {"c": told(TEN)}, {"b", "c"}) == {
        "b": None,
        "c": replace(told(TEN), served=True),
    }


PAGE = {"revision": OLD, "process": "p", "requests": 3, "errors": 1, "latency": {"-30": 1, "96": 1}}


def test_a_page_is_read() -> None:
    assert parse_reading(json.dumps(PAGE).encode()) == Reading(OLD, "p", Counts(3, 1, {-30: 1, 96: 1}))


@pytest.mark.parametrize(
    "change",
    [
        {"requests": -1},
        {"requests": 1.5},
        {"requests": 10**16},
        {"requests": True},
        {"requests": 4},
        {"errors": 2},
        {"latency": {"97": 2}},
        {"latency": {"-1000000": 2}},
        {"latency": {"fast": 2}},
        {"latency": {"-30": 1e300}},
        {"latency": [1, 1]},
        {"process": None},
        {"revision": "m" * 300},
    ],
)
def test_what_makes_no_sense_is_no_reading(change: dict[str, Any]) -> None:
    with pytest.raises(BadReading):
        parse_reading(json.dumps(PAGE | change).encode())


SPLIT = {"requests": 2, "errors": 1, "refused": 4, "left": 1, "latency": {"-30": 2}, "pending": {"7": 3}}


def test_of_a_page_with_a_split_that_alone_is_read() -> None:
    read = parse_reading(json.dumps(PAGE | {"split": SPLIT}).encode())
    assert read.totals == Counts(2, 1, {-30: 2}, refused=4, left=1, pending={7: 3})


@pytest.mark.parametrize("change", [{"left": 0}, {"refused": -1}, {"pending": {"97": 1}}, {"pending": None}])
def test_a_split_that_makes_no_sense_is_no_reading(change: dict[str, Any]) -> None:
    with pytest.raises(BadReading):
        parse_reading(json.dumps(PAGE | {"split": SPLIT | change}).encode())


def test_a_page_of_a_language_model_has_times_between_tokens_and_answers_without_a_latency() -> None:
    more = {"untimed": 2, "requests": 4, "interTokenLatency": {"-40": 1}}
    read = parse_reading(json.dumps(PAGE | {"split": SPLIT | more}).encode())
    assert read.totals == Counts(4, 1, {-30: 2}, refused=4, left=1, pending={7: 3}, between_tokens={-40: 1})
    for change in ({"untimed": 1}, {"interTokenLatency": {"97": 1}}):
        with pytest.raises(BadReading):
            parse_reading(json.dumps(PAGE | {"split": SPLIT | more | change}).encode())


def test_requests_in_flight_are_as_last_read_and_no_total() -> None:
    hangs = Counts(10, 1, {-30: 9}, pending={60: 5})
    said = looks({"a": told(hangs)}, {"a": told(hangs), "b": told(hangs)})
    assert [one[OLD].pending for one in said] == [{60: 5}, {60: 10}]
    assert said[0][OLD].then(said[1][OLD]).pending == {60: 10}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b'{"requests": NaN}'])
def test_what_is_no_page_is_no_reading(body: bytes) -> None:
    with pytest.raises(BadReading):
        parse_reading(body)
