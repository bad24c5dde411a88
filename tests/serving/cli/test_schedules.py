"""Test the output of schedules in `knodel describe` and `knodel explain`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from serving.cli.texts import schedule_lines

MONDAY = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
WORK = {"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "duration": "10h", "minReplicas": 2}
NIGHT = {"cron": "0 22 * * *", "duration": "90m", "minReplicas": 1}


def lines(*schedules: Any) -> list[str]:
    return schedule_lines({"spec": {"schedules": list(schedules)}}, MONDAY)


def test_each_schedule_is_printed_in_its_time_zone() -> None:
    assert lines(WORK, NIGHT) == [
        "Schedules:",
        "  '0 8 * * 1-5' Europe/Berlin: open, at least 2 replicas until Mon 2026-11-23 18:00",
        "  '0 22 * * *' UTC: closed, at least 1 replica from Mon 2026-11-23 22:00",
    ]


@pytest.mark.parametrize("spec", [{}, {"schedules": None}, {"schedules": []}])
def test_without_schedules_nothing_is_said(spec: dict[str, Any]) -> None:
    assert schedule_lines({"spec": spec}, MONDAY) == []


@pytest.mark.parametrize(
    "entry",
    [1, {}, WORK | {"duration": 1}, WORK | {"timeZone": "Mars/Olympus"}, WORK | {"cron": "x"}, WORK | {"cron": None}],
)
def test_an_invalid_schedule_does_not_hide_the_others(entry: Any) -> None:
    assert lines(entry, NIGHT) == lines(NIGHT)
