"""Schedules: replicas that are wanted by the clock. Pure, but for the time zones, which are read from the system.

A schedule opens a window at each start that its cron line names, by the wall clock of its time zone, and closes it
`duration` later, by elapsed time: across midnight and across changes of daylight saving time. What cron lines mean, and
what becomes of starts at an hour that is skipped (at its end) or comes twice (the first time), is Debian's cron
(cronsim: https://github.com/cuu508/cronsim).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import islice
from typing import Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from clusters.base.errors import FieldError, KnodelError

MOST_SCHEDULES: Final = 16
"""Of one revision: a working day, a weekend, a nightly batch and some more."""
MOST_REPLICAS: Final = 1_000
"""What a revision may have at most (`autoscaler.types`)."""
LONGEST: Final = 7 * 86_400.0
"""s of one window; who wants longer writes minReplicas."""
LONGEST_CRON: Final = 100
"""Characters of a cron line."""
DEFAULT_ZONE: Final = "UTC"


def _list_of(value: str) -> str:
    """The syntax of a field of a cron line: a list of numbers, ranges and steps."""
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
"""Five fields as cron has them, and what cronsim adds: the last day (L) or working day (LW) of a month, its last Friday
(5L), its second one (FRI#2). The CustomResourceDefinition has it too: nothing that RE2 has not.
"""
ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")
"""How names of time zones look, for those who cannot look them up."""
LONGEST_ZONE: Final = 64
"""Characters of such a name."""
_FOLD: Final = timedelta(hours=3)  # more than any zone's clocks are ever put back by
_FIRST: Final = datetime(2000, 1, 1)  # from where a line is tried: a leap year, which begins a cycle of 400 years
_NEEDED: Final = "must have cron, duration and minReplicas, perhaps timeZone, and nothing else"
_NO_ZONE: Final = (KeyError, ValueError, OSError)  # what ZoneInfo raises for a name that is none
_LOOKED_AT: Final = 8  # starts to come: where more windows follow on one another, the next look comes a little early


class InvalidSchedules(KnodelError):
    """Schedules that cannot be followed; `causes` name every field."""

    def __init__(self, causes: Sequence[FieldError]) -> None:
        super().__init__("schedules refused: " + "; ".join(str(cause) for cause in causes))
        self.causes = tuple(causes)


@dataclass(frozen=True, slots=True)
class Schedule:
    """At least `min_replicas` for `duration` seconds from each start that `cron` names in `time_zone` (IANA)."""

    cron: str
    duration: float
    min_replicas: int
    time_zone: str = DEFAULT_ZONE

    def to_json(self) -> dict[str, Any]:
        """As it stands in a policy: `{"cron":"0 8 * * 1-5","timeZone":"Europe/Berlin","duration":3600.0,
        "minReplicas":2}`.
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
    """A schedule at a moment: whether a window is open, and until when that stays so (None: for good)."""

    schedule: Schedule
    is_open: bool
    until: datetime | None


def scheduled_minimum(schedules: Iterable[Schedule], now: datetime) -> tuple[int, datetime | None]:
    """The largest `min_replicas` of the windows open at `now` (aware), 0 without any, and when that may be another.

    A window is [start, start + duration). The second is None when it never changes; it is aware, in UTC.
    """
    found = [opening(schedule, now) for schedule in schedules]
    least = max((one.schedule.min_replicas for one in found if one.is_open), default=0)
    return least, min((one.until for one in found if one.until is not None), default=None)


def opening(schedule: Schedule, now: datetime) -> Opening:
    """Where a schedule stands at `now` (aware). Raises InvalidSchedules when it was never checked and is none."""
    now, length = now.astimezone(UTC), timedelta(seconds=schedule.duration)
    try:
        last, coming = _around(schedule.cron, schedule.time_zone, now.replace(second=0, microsecond=0))
    except (CronSimError, *_NO_ZONE) as error:
        raise InvalidSchedules([FieldError("schedules", f"{schedule} is none: {error}")]) from error
    if last is None or last + length <= now:
        return Opening(schedule, False, next(iter(coming), None))
    return Opening(schedule, True, _end(last + length, coming, length))


def cron_fault(cron: str) -> str:
    """What is wrong with a cron line; empty when nothing is."""
    if len(cron) > LONGEST_CRON or not CRON.fullmatch(cron):
        return f"must be a cron line of five fields such as '0 8 * * 1-5', not {cron[:LONGEST_CRON]!r}"
    try:
        next(CronSim(cron, _FIRST))
    except CronSimError as error:
        return f"must be a cron line of five fields such as '0 8 * * 1-5', not {cron!r}: {str(error).lower()}"
    except StopIteration:
        return f"must name a time that comes: {cron!r} never does"
    return ""


def zone_fault(name: str) -> str:
    """What is wrong with the name of a time zone; empty when nothing is."""
    if name in time_zones():
        return ""
    close = get_close_matches(name[:LONGEST_ZONE], time_zones(), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"must be a time zone of IANA's database such as Europe/Berlin, not {name[:LONGEST_ZONE]!r}{hint}"


@lru_cache(maxsize=1)
def time_zones() -> frozenset[str]:
    """The names of IANA's time zones; those that a system adds for itself, such as `localtime`, are not among them."""
    return frozenset(files("tzdata").joinpath("zones").read_text().split())


def faults_of(schedule: Schedule) -> list[FieldError]:
    """Every field of a schedule that is out of its range, by its name in JSON."""
    checks = (
        ("cron", cron_fault(schedule.cron)),
        ("timeZone", zone_fault(schedule.time_zone)),
        ("duration", "" if 0.0 < schedule.duration <= LONGEST else "must be more than 0 s and at most 7 days"),
        ("minReplicas", "" if 1 <= schedule.min_replicas <= MOST_REPLICAS else f"must be from 1 to {MOST_REPLICAS}"),
    )
    return [FieldError(name, fault) for name, fault in checks if fault]


def read_schedules(said: Any) -> tuple[Schedule, ...]:
    """The schedules in a policy's JSON. Raises InvalidSchedules with every fault."""
    if not isinstance(said, list) or len(said) > MOST_SCHEDULES:
        given = f"{len(said)} of them" if isinstance(said, list) else repr(said)[:60]
        raise InvalidSchedules([FieldError("schedules", f"must be a list of at most {MOST_SCHEDULES}, not {given}")])
    schedules: list[Schedule] = []
    errors: list[FieldError] = []
    for index, entry in enumerate(said):
        schedule = _read(entry)
        found = [FieldError("", _NEEDED)] if schedule is None else faults_of(schedule)
        errors += [FieldError(f"schedules[{index}].{one.path}".rstrip("."), one.message) for one in found]
        schedules += [schedule] if schedule is not None else []
    if errors:
        raise InvalidSchedules(errors)
    return tuple(schedules)


def _read(entry: Any) -> Schedule | None:
    """The schedule of an entry, its values unchecked; None where a field is missing, unknown or of the wrong type."""
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
    """The last start up to this whole minute (UTC), and some that come after it: all starts are at whole minutes."""
    last = next((start for start in _starts(cron, zone, minute + _FOLD, back=True) if start <= minute), None)
    coming = (start for start in _starts(cron, zone, minute - _FOLD) if start > minute)
    return last, tuple(islice(coming, _LOOKED_AT))


def _starts(cron: str, zone: str, near: datetime, *, back: bool = False) -> Iterator[datetime]:
    """The starts after `near`, or before it, in their order; in UTC, since times of one zone compare by the wall.

    cronsim counts by the wall where a line names hours: near a change of the clocks it may begin some hours too late.
    """
    for start in CronSim(cron, near.astimezone(ZoneInfo(zone)), reverse=back):
        yield start.astimezone(UTC)


def _end(end: datetime, coming: Iterable[datetime], length: timedelta) -> datetime:
    """When the window closes, or the last of those that follow on it without a pause."""
    for start in coming:
        if start > end:
            break
        end = start + length
    return end
