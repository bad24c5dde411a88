"""Durations as Go writes them, in annotations of Knative: `600s`, `1m30s`, `1.5h`."""

from __future__ import annotations

import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_TERM.pattern})+")


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError for anything that Go's `time.ParseDuration` refuses."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it as in 90s or 1m30s")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _TERM.findall(text))
    return -seconds if text.startswith("-") else seconds
