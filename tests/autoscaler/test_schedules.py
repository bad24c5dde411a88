"""Schedules: windows across midnight, weeks and changes of daylight saving time; rejected schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.schedules import (
    MOST_SCHEDULES,
    InvalidSchedules,
    Schedule,
    cron_fault,
    faults_of,
    opening,
    read_schedules,
    scheduled_minimum,
    zone_fault,
)

HOUR = 3_600.0
WORK = Schedule("0 8 * * 1-5", 10 * HOUR, 2, "Europe/Berlin")
NIGHT = Schedule("0 22 * * *", 8 * HOUR, 1, "Europe/Berlin")


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "least", "until"),
    [
        ("2026-11-23T07:59:59.999", 0, "2026-11-23T08:00"),  # a Monday
        ("2026-11-23T08:00", 2, "2026-11-23T18:00"),
        ("2026-11-23T17:59:59.999", 2, "2026-11-23T18:00"),
        ("2026-11-23T18:00", 0, "2026-11-24T08:00"),
        ("2026-11-27T18:00", 0, "2026-11-30T08:00"),  # over the weekend
    ],
)
def test_a_window_is_open_from_its_start_until_just_before_its_end(now: str, least: int, until: str) -> None:
    assert scheduled_minimum([WORK], berlin(now)) == (least, berlin(until).astimezone(UTC))


@pytest.mark.parametrize(("now", "is_open"), [("2026-11-23T23:30", True), ("2026-11-24T05:59", True)])
def test_a_window_goes_on_across_midnight(now: str, is_open: bool) -> None:
    assert opening(NIGHT, berlin(now)).is_open is is_open
    assert not opening(NIGHT, berlin("2026-11-24T06:00")).is_open


def test_of_open_windows_the_largest_counts_and_the_next_look_is_at_the_first_change() -> None:
    more = Schedule("30 9 * * *", HOUR, 5, "Europe/Berlin")
    assert scheduled_minimum([WORK, more], berlin("2026-11-23T09:00"))[0] == 2
    assert scheduled_minimum([WORK, more], berlin("2026-11-23T09:30")) == (5, utc("2026-11-23T09:30"))
    assert scheduled_minimum([WORK, more], berlin("2026-11-23T10:30"))[0] == 2


def test_without_schedules_nothing_is_wanted_and_nothing_ever_changes() -> None:
    assert scheduled_minimum([], utc("2026-01-01T00:00")) == (0, None)


def test_windows_that_follow_on_one_another_are_one() -> None:
    hourly = Schedule("0 9-11 * * *", HOUR, 1)
    assert opening(hourly, utc("2026-01-01T09:30")).until == utc("2026-01-01T12:00")
    weekly = Schedule("0 0 * * 1", 7 * 24 * HOUR, 1)
    assert opening(weekly, utc("2026-01-07T00:00")).is_open


def test_a_zone_decides_when_a_day_begins() -> None:
    assert opening(Schedule("0 8 * * *", HOUR, 1, "Asia/Tokyo"), utc("2026-01-01T23:00")).is_open
    assert opening(Schedule("0 8 * * *", HOUR, 1), utc("2026-01-01T08:00")).is_open


def test_a_window_is_as_long_when_clocks_are_changed_within_it() -> None:
    night = Schedule("0 1 * * *", 4 * HOUR, 1, "Europe/Berlin")
    spring, autumn = opening(night, utc("2026-03-29T00:30")), opening(night, utc("2026-10-25T00:30"))
    assert spring.until == berlin("2026-03-29T06:00").astimezone(UTC)  # an hour is skipped
    assert autumn.until == berlin("2026-10-25T04:00").astimezone(UTC)  # an hour comes twice


def test_a_start_in_the_hour_that_is_skipped_is_at_its_end() -> None:
    night = Schedule("30 2 * * *", HOUR, 1, "Europe/Berlin")
    assert not opening(night, utc("2026-03-29T00:59:59")).is_open
    assert opening(night, utc("2026-03-29T01:00")).is_open
    assert opening(night, utc("2026-03-29T01:59:59")).is_open
    assert not opening(night, utc("2026-03-29T02:00")).is_open


def test_a_start_in_the_hour_that_comes_twice_is_the_first_time_only() -> None:
    night = Schedule("30 2 * * *", 0.25 * HOUR, 1, "Europe/Berlin")
    assert opening(night, berlin("2026-10-25T02:35", fold=0)).is_open
    assert not opening(night, berlin("2026-10-25T02:35", fold=1)).is_open
    long = Schedule("30 2 * * *", 2 * HOUR, 1, "Europe/Berlin")
    assert opening(long, berlin("2026-10-25T02:15", fold=1)).is_open, "45 minutes after it began"


def test_both_directions_of_the_search_find_the_same_starts_where_clocks_change_by_half_an_hour() -> None:
    hourly = Schedule("30 * * * *", 0.25 * HOUR, 1, "Australia/Lord_Howe")
    before = opening(hourly, utc("2026-04-04T14:50"))
    assert not before.is_open and before.until == utc("2026-04-04T16:00")
    assert not opening(hourly, utc("2026-04-04T15:05")).is_open


CHANGES = [utc("2026-03-29T01:00"), utc("2026-10-25T01:00"), utc("2026-04-04T15:00"), utc("2026-11-01T06:00")]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
MINUTE = st.sampled_from(["0", "30", "5,45", "10-20", "*/15", "59"])
HOURS = st.sampled_from(["*", "2", "0", "1-3", "23", "*/6", "8,20"])
DAYS = st.sampled_from(["* * *", "* * 1-5", "* * SUN", "25 * *", "29 3 *", "* 3-11 6,0"])


@settings(max_examples=300, deadline=None)
@given(
    MINUTE, HOURS, DAYS, st.sampled_from(ZONES), st.floats(60.0, 3 * 86_400.0),
    st.sampled_from(CHANGES), st.integers(-3 * 86_400, 3 * 86_400),
)  # fmt: skip
def test_a_window_is_open_when_one_of_all_starts_says_so(
    minute: str, hours: str, days: str, zone: str, duration: float, change: datetime, offset: int
) -> None:
    schedule = Schedule(f"{minute} {hours} {days}", duration, 3, zone)
    now = change + timedelta(seconds=offset)
    found, length = opening(schedule, now), timedelta(seconds=duration)
    first = (now - length - timedelta(days=1)).astimezone(ZoneInfo(zone))
    starts = []  # all whose windows may hold a moment until the next change
    for start in CronSim(schedule.cron, first):
        starts.append(start.astimezone(UTC))
        if starts[-1] > (found.until or now):
            break
    assert found.is_open == any(start <= now < start + length for start in starts)
    if found.until is not None:
        assert found.until > now
        for moment in (now, now + (found.until - now) / 2, found.until - timedelta(microseconds=1)):
            assert found.is_open == any(start <= moment < start + length for start in starts), "it stays so until then"


# --- what is refused ---


@pytest.mark.parametrize(
    "cron",
    ["", "8 * * *", "0 8 * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 30 2 *", "* * */20 * 1L", "a b c d e",
     "5-1 * * * *", "*/0 * * * *", "0 8 * * MON-", "@daily", "1" * 101],
)  # fmt: skip
def test_a_line_that_names_no_time_is_refused(cron: str) -> None:
    assert "must" in cron_fault(cron)


@pytest.mark.parametrize("cron", ["0 8 * * 1-5", "*/15 9-17 * * MON,WED", "0 0 29 2 *", "0 0 L * *", "0 0 * * 5#2"])
def test_a_line_that_names_a_time_is_taken(cron: str) -> None:
    assert cron_fault(cron) == ""


@pytest.mark.parametrize("zone", ["", "localtime", "Mars/Olympus", "../etc/passwd", "right/UTC", "Europe", "+02:00"])
def test_a_name_that_is_no_zone_of_iana_is_refused(zone: str) -> None:
    assert zone_fault(zone).startswith("must be a time zone")


def test_a_zone_that_is_misspelt_is_suggested() -> None:
    assert zone_fault("Europe/Berln").endswith("did you mean Europe/Berlin?")
    assert zone_fault("Europe/Berlin") == ""


@pytest.mark.parametrize("duration", [0.0, -1.0, float("nan"), float("inf"), 7 * 86_400.0 + 1])
def test_a_window_of_no_length_or_of_more_than_a_week_is_refused(duration: float) -> None:
    assert [fault.path for fault in faults_of(Schedule("0 8 * * *", duration, 1))] == ["duration"]


@pytest.mark.parametrize("least", [0, -1, 1_001])
def test_a_number_of_replicas_out_of_bounds_is_refused(least: int) -> None:
    assert [fault.path for fault in faults_of(Schedule("0 8 * * *", HOUR, least))] == ["minReplicas"]


def test_json_and_back() -> None:
    assert read_schedules([WORK.to_json(), NIGHT.to_json()]) == (WORK, NIGHT)
    assert read_schedules([{"cron": "0 8 * * *", "duration": 60, "minReplicas": 1}]) == (
        Schedule("0 8 * * *", 60.0, 1, "UTC"),
    )


@pytest.mark.parametrize(
    ("said", "paths"),
    [
        ("daily", ["schedules"]),
        ([WORK.to_json()] * (MOST_SCHEDULES + 1), ["schedules"]),
        (["daily"], ["schedules[0]"]),
        ([WORK.to_json() | {"maxReplicas": 1}], ["schedules[0]"]),
        ([WORK.to_json() | {"minReplicas": 1.5}], ["schedules[0]"]),
        ([WORK.to_json() | {"duration": True}], ["schedules[0]"]),
        ([WORK.to_json(), {"cron": "x", "duration": 10**400, "minReplicas": 0, "timeZone": "x"}],
         ["schedules[1].cron", "schedules[1].timeZone", "schedules[1].duration", "schedules[1].minReplicas"]),
    ],
)  # fmt: skip
def test_every_fault_of_what_was_said_is_named(said: object, paths: list[str]) -> None:
    with pytest.raises(InvalidSchedules) as caught:
        read_schedules(said)
    assert [cause.path for cause in caught.value.causes] == paths


def test_a_schedule_that_nobody_checked_is_an_error_and_not_a_closed_window() -> None:
    with pytest.raises(InvalidSchedules, match="Mars/Olympus"):
        opening(Schedule("0 8 * * *", HOUR, 1, "Mars/Olympus"), utc("2026-01-01T00:00"))
