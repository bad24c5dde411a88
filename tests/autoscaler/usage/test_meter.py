"""Usage meters: bounded sums by hour and day, unchanged by writing and reading."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.usage.meter import (
    KEPT_DAYS,
    KEPT_HOURS,
    KEPT_METERS,
    USAGE_ANNOTATION,
    Meter,
    Spent,
    Usage,
    hours_between,
    read_usage,
)

START = datetime(2026, 1, 1, 14, 59, 30, tzinfo=UTC)
CORE = {"cpu": 1.0}


def written(usage: Usage) -> Any:
    return {"metadata": {"annotations": {USAGE_ANNOTATION: usage.to_json()}}}


def test_what_is_added_stands_in_its_hour_and_its_day() -> None:
    meter = Meter(CORE)
    meter.add(Spent(serving=10.0), START)
    meter.add(Spent(idle=5.0), START + timedelta(minutes=1))
    assert meter.hours == {"2026-01-01T14": Spent(serving=10.0), "2026-01-01T15": Spent(idle=5.0)}
    assert meter.days == {"2026-01-01": Spent(serving=10.0, idle=5.0)}


def test_hours_and_days_are_bounded_and_the_oldest_go() -> None:
    meter = Meter(CORE)
    for hour in range(24 * 40):
        meter.add(Spent(idle=1.0), START + timedelta(hours=hour))
    assert len(meter.hours) == KEPT_HOURS
    assert len(meter.days) == KEPT_DAYS
    assert min(meter.days) == "2026-01-10"  # 40 days end on 10 February


def test_a_usage_is_the_same_after_it_was_written_and_read() -> None:
    usage = Usage(START)
    usage.meter({"cpu": 1.0, "memory": 2.0**30, "nvidia.com/gpu": 1.0}).add(Spent(1.25, 2.5, 3.0, 4.0, 1.0), START)
    usage.meter(CORE).add(Spent(canary=7.0), START)
    assert read_usage(written(usage)) == usage


def test_a_month_at_full_length_fits_an_annotation_many_times() -> None:
    usage = Usage(START)
    for hour in range(24 * 40):
        row = Spent(123456.78, 123456.78, 1234.56, 1234.56, 99.0)
        usage.meter(CORE).add(row, START + timedelta(hours=hour))
    assert len(usage.to_json()) < 4_096
    for hour in range(24 * 40):
        usage.meter(CORE).add(Spent(prompt_tokens=1e9, completion_tokens=1e9), START + timedelta(hours=hour))
    assert len(usage.to_json()) < 8_192


def test_tokens_stand_beside_the_pod_seconds_and_only_where_there_are_any() -> None:
    plain, counted = Usage(START), Usage(START)
    for usage, tokens in ((plain, (0.0, 0.0)), (counted, (700.0, 300.0))):
        usage.meter(CORE).add(Spent(1.25, 2.5, 3.0, 4.0, 1.0, *tokens), START)
    assert plain.to_json() == (
        '{"at":"2026-01-01T14:59:30Z","meters":[{"replica":{"cpu":1.0},'
        '"hours":{"2026-01-01T14":[1.25,2.5,3.0,4.0,1.0]},"days":{"2026-01-01":[1.25,2.5,3.0,4.0,1.0]}}]}'
    )
    written_tokens = '"tokens":{"hours":{"2026-01-01T14":[700,300]},"days":{"2026-01-01":[700,300]}}'
    assert counted.to_json() == plain.to_json().replace("}}]}", "}," + written_tokens + "}]}")
    assert read_usage(written(counted)) == counted
    old = read_usage(written(plain))
    old.meter(CORE).add(Spent(prompt_tokens=7.0), START)  # a language model's, written before tokens were counted
    assert old.meters[0].days == {"2026-01-01": Spent(1.25, 2.5, 3.0, 4.0, 1.0, 7.0)}


@pytest.mark.parametrize("tokens", ["7", "[]", '{"days":[7,3]}', '{"days":{"2026-01-01":[7]}}',
                                    '{"days":{"2026-01-01":[7,-3]}}', '{"days":{"2026-01-01":[7,1e999]}}'])  # fmt: skip
def test_what_are_no_tokens_of_ours_leaves_the_pod_seconds(tokens: str) -> None:
    text = f'{{"meters":[{{"replica":{{"cpu":1}},"days":{{"2026-01-01":[1,2,3,4,5]}},"tokens":{tokens}}}]}}'
    usage = read_usage({"metadata": {"annotations": {USAGE_ANNOTATION: text}}})
    assert usage.meters[0].days == {"2026-01-01": Spent(1.0, 2.0, 3.0, 4.0, 5.0)}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"at":7}', '{"at":"soon"}', '{"meters":[1]}', '{"meters":{"a":1}}', "[" * 10_000,
     '{"meters":[{"replica":{"cpu":"many"},"hours":{"x":[1,2]},"days":{"y":[NaN,0,0,0,0],"z":[-1,0,0,0,0]}}]}'],
)  # fmt: skip
def test_what_is_no_usage_of_ours_counts_as_nothing(text: str) -> None:
    usage = read_usage({"metadata": {"annotations": {USAGE_ANNOTATION: text}}})
    assert sum((spent.pod_seconds for one in usage.meters for spent in one.days.values()), 0.0) == 0.0
    json.loads(usage.to_json())


def test_replicas_of_other_sizes_have_meters_of_their_own_and_those_are_bounded() -> None:
    usage = Usage()
    for cores in range(10):
        usage.meter({"cpu": float(cores)}).add(Spent(idle=1.0), START)
    assert [one.replica["cpu"] for one in usage.meters] == [6.0, 7.0, 8.0, 9.0]
    assert len(usage.meters) == KEPT_METERS


def test_a_time_is_divided_at_full_hours() -> None:
    parts = list(hours_between(START, START + timedelta(hours=2)))
    assert [(at.hour, seconds) for at, seconds in parts] == [(14, 30.0), (15, 3600.0), (16, 3570.0)]
    assert list(hours_between(START, START)) == []
