"""Schedules: minimum replicas during time windows. Pure, except that time zones are read from the system.

A window opens at each time that the schedule's cron expression names, in the wall-clock time of its time zone. It
closes `duration` seconds of elapsed time later, also across midnight and changes of daylight saving time. Cron
expressions have the meaning of Debian's cron (cronsim: https://github.com/cuu508/cronsim): a start in a skipped hour
happens at the end of that hour, a start in a repeated hour at its first occurrence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import islice, takewhile
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from clusters.base.errors import FieldError, KnodelError

MOST_SCHEDULES: Final = 16
"""Maximum schedules of one revision: enough for a working day, a weekend, a nightly batch and some more."""
MOST_REPLICAS: Final = 1_000
"""Maximum replicas of a revision (`autoscaler.types`)."""
LONGEST: Final = 7 * 86_400.0
"""Maximum seconds of one window; `minReplicas` covers longer needs."""
LONGEST_CRON: Final = 100
"""Maximum characters of a cron expression."""
DEFAULT_ZONE: Final = "UTC"


def _list_of(value: str) -> str:
    """Return the pattern of one cron field: a list of numbers, ranges and steps."""
    item = rf"(?:\*|(?:{value})(?:-(?:{value}))?)(?:/0*[1-9][0-9]*)?"
    return f"{item}(?:,{item})*"


_MONTHS: Final = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_DAYS: Final = "SUN|MON|TUE|WED|THU|FRI|SAT"
CRON: Final = re.compile(
    "(?i:"
    + " +".join(
        map(
            _list_of,
            (
                "0*[1-5]?[0-9]",
                "0*(?:1?[0-9]|2[0-3])",
                "0*(?:[1-9]|[12][0-9]|3[01])|LW?",
                f"0*(?:[1-9]|1[0-2])|{_MONTHS}",
                f"0*[0-7]L|(?:0*[0-7]|{_DAYS})(?:#[1-5])?",
            ),
        )
    )
    + ")"
)
"""Pattern of a cron expression: the five fields of cron, plus cronsim's extensions for the last day (L) and last
working day (LW) of a month, its last Friday (5L) and its second Friday (FRI#2). The CustomResourceDefinition contains
it too, so it uses only syntax of RE2.
"""
ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")
"""Pattern of time-zone names, for validators without a time-zone database."""
LONGEST_ZONE: Final = 64
"""Maximum characters of a time-zone name."""
_FOLD: Final = timedelta(hours=3)  # longer than any time zone ever sets its clocks back
_FIRST: Final = datetime(2000, 1, 1)  # first start searched for: the begin of a leap year and of a cycle of 400 years
_NEEDED: Final = "must have cron, duration and minReplicas, perhaps timeZone, and nothing else"
_NO_ZONE: Final = (KeyError, ValueError, OSError)  # raised by ZoneInfo for unknown names
_STARTS_READ: Final = 8  # future starts read; with more adjoining windows, the next recalculation comes earlier


class InvalidSchedules(KnodelError):
    """Raised for invalid schedules; `causes` lists every invalid field."""

    def __init__(self, causes: Sequence[FieldError]) -> None:
        super().__init__("invalid schedules: " + "; ".join(str(cause) for cause in causes))
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Schedule:
    """At least `min_replicas` for `duration` seconds from each start that `cron` names in `time_zone` (IANA name)."""

    cron: str
    duration: float
    min_replicas: int
    time_zone: str = DEFAULT_ZONE

    def to_json(self) -> dict[str, Any]:
        """Return the policy's representation: `{"cron":"0 8 * *
        1-5","timeZone":"Europe/Berlin","duration":3600.0,"minReplicas":2}`.
        """
        return {
            "cron": self.cron,
            "timeZone": self.time_zone,
            "duration": self.duration,
            "minReplicas": self.min_replicas,
        }

    def __str__(self) -> str:
        return f"{self.cron!r} {self.time_zone}"


@dataclass(frozen=True, slots=True)
class Opening:
    """The state of a schedule at one time: whether a window is open, and when that changes next (None: never)."""

    schedule: Schedule
    is_open: bool
    until: datetime | None


def scheduled_minimum(schedules: Iterable[Schedule], now: datetime) -> tuple[int, datetime | None]:
    """Return the largest `min_replicas` of the windows open at `now`, 0 without any, and when that may change next.

    A window is [start, start + duration). `now` must have a time zone. The second value is None when the minimum never
    changes; otherwise it is in UTC.
    """
    found = [opening(schedule, now) for schedule in schedules]
    least = max((one.schedule.min_replicas for one in found if one.is_open), default=0)
    return least, min((one.until for one in found if one.until is not None), default=None)


def opening(schedule: Schedule, now: datetime) -> Opening:
    """Return the state of a schedule at `now` (with a time zone). Raises InvalidSchedules for an unchecked, invalid
    schedule.
    """
    now, length = now.astimezone(UTC), timedelta(seconds=schedule.duration)
    try:
        last, coming = _around(schedule.cron, schedule.time_zone, now.replace(second=0, microsecond=0))
    except (CronSimError, *_NO_ZONE) as error:
        raise InvalidSchedules([FieldError("schedules", f"{schedule} is not a schedule: {error}")]) from error
    if last is None or last + length <= now:
        return Opening(schedule, False, next(iter(coming), None))
    end = last + length
    for start in coming:  # windows that adjoin this one without a gap
        if start > end:
            break
        end = start + length
    return Opening(schedule, True, end)


def cron_fault(cron: str) -> str:
    """Return the fault of a cron expression, or an empty string."""
    if len(cron) > LONGEST_CRON or not CRON.fullmatch(cron):
        return f"must be a cron line of five fields such as '0 8 * * 1-5', not {cron[:LONGEST_CRON]!r}"
    try:
        next(CronSim(cron, _FIRST))
    except CronSimError as error:
        return f"must be a cron line of five fields such as '0 8 * * 1-5', not {cron!r}: {str(error).lower()}"
    except StopIteration:
        return f"must name a time that occurs: {cron!r} never does"
    return ""


def zone_fault(name: str) -> str:
    """Return the fault of a time-zone name, or an empty string."""
    if name in time_zones():
        return ""
    close = get_close_matches(name[:LONGEST_ZONE], time_zones(), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"must be a time zone of IANA's database such as Europe/Berlin, not {name[:LONGEST_ZONE]!r}{hint}"


@lru_cache(maxsize=1)
def time_zones() -> frozenset[str]:
    """Return the names of IANA's time zones, without a system's own additions such as `localtime`."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


def faults_of(schedule: Schedule) -> list[FieldError]:
    """Return an error for every invalid field of a schedule, by its JSON name."""
    checks = (
        ("cron", cron_fault(schedule.cron)),
        ("timeZone", zone_fault(schedule.time_zone)),
        ("duration", "" if 0.0 < schedule.duration <= LONGEST else "must be more than 0 s and at most 7 days"),
        ("minReplicas", "" if 1 <= schedule.min_replicas <= MOST_REPLICAS else f"must be from 1 to {MOST_REPLICAS}"),
    )
    return [FieldError(name, fault) for name, fault in checks if fault]


def read_schedules(document: Any) -> tuple[Schedule, ...]:
    """Return the schedules in a policy's JSON. Raises InvalidSchedules with every fault."""
    if not isinstance(document, list) or len(document) > MOST_SCHEDULES:
        given = f"{len(document)} of them" if isinstance(document, list) else repr(document)[:60]
        raise InvalidSchedules([FieldError("schedules", f"must be a list of at most {MOST_SCHEDULES}, not {given}")])
    schedules: list[Schedule] = []
    errors: list[FieldError] = []
    for index, entry in enumerate(document):
        schedule = _read(entry)
        found = [FieldError("", _NEEDED)] if schedule is None else faults_of(schedule)
        errors += [FieldError(f"schedules[{index}].{one.path}".rstrip("."), one.message) for one in found]
        schedules += [schedule] if schedule is not None else []
    if errors:
        raise InvalidSchedules(errors)
    return tuple(schedules)


def _read(entry: Any) -> Schedule | None:
    """Return the schedule of an entry with unchecked values, or None when a field is missing, unknown or of the wrong
    type.
    """
    if not isinstance(entry, Mapping) or not set(entry) <= {"cron", "timeZone", "duration", "minReplicas"}:
        return None
    cron, zone = entry.get("cron"), entry.get("timeZone", DEFAULT_ZONE)
    duration, least = entry.get("duration"), entry.get("minReplicas")
    if not isinstance(cron, str) or not isinstance(zone, str) or isinstance(least, bool) or isinstance(duration, bool):
        return None
    if not isinstance(duration, int | float) or not isinstance(least, int):
        return None
    return Schedule(cron, float(min(duration, 2.0 * LONGEST)), least, zone)


@lru_cache(maxsize=4_096)
def _around(cron: str, zone: str, minute: datetime) -> tuple[datetime | None, tuple[datetime, ...]]:
    """Return the last start up to this whole minute (UTC), and the next starts after it. All starts are at whole
    minutes.

    The starts are those that cronsim finds forwards. Backwards it finds one more where clocks are set back by half an
    hour (`30 * * * *` in Australia/Lord_Howe).
    """
    last = next((start for start in _starts(cron, zone, minute + _FOLD, back=True) if start <= minute), None)
    if last is not None:
        last = max(takewhile(lambda start: start <= minute, _starts(cron, zone, last - _FOLD)), default=last)
    coming = (start for start in _starts(cron, zone, minute - _FOLD) if start > minute)
    return last, tuple(islice(coming, _STARTS_READ))


def _starts(cron: str, zone: str, near: datetime, *, back: bool = False) -> Iterator[datetime]:
    """Yield the starts after `near`, or before it, in order; in UTC, because times of one zone compare by wall clock.

    cronsim counts in wall-clock time when an expression names hours. Near a clock change it may begin some hours too
    late.
    """
    for start in CronSim(cron, near.astimezone(ZoneInfo(zone)), reverse=back):
        yield start.astimezone(UTC)
