"""What a Model's schedules say at a moment, for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from autoscaler.schedules import DEFAULT_ZONE, InvalidSchedules, Opening, Schedule, opening
from clusters.base.durations import parse_duration
from clusters.base.objects import Object


def schedule_lines(model: Object, now: datetime) -> list[str]:
    """A headline and a line for each schedule of the Model at `now` (aware); nothing without any."""
    lines = [_line(one) for one in _openings(model["spec"].get("schedules") or (), now)]
    return ["Schedules:", *lines] if lines else []


def _openings(said: Any, now: datetime) -> Iterator[Opening]:
    """Those that can be followed: what cannot be is refused at the door, and told by the condition Ready."""
    for entry in said:
        try:
            zone, seconds = entry.get("timeZone") or DEFAULT_ZONE, parse_duration(entry["duration"])
            yield opening(Schedule(entry["cron"], seconds, int(entry["minReplicas"]), zone), now)
        except (AttributeError, KeyError, TypeError, ValueError, InvalidSchedules):
            continue


def _line(found: Opening) -> str:
    schedule = found.schedule
    if found.until is None:
        return f"  {schedule}: closed, and never opens again"
    until = found.until.astimezone(ZoneInfo(schedule.time_zone)).strftime("%a %Y-%m-%d %H:%M")
    count = f"at least {schedule.min_replicas} replica{'s' if schedule.min_replicas > 1 else ''}"
    return f"  {schedule}: {f'open, {count} until' if found.is_open else f'closed, {count} from'} {until}"
