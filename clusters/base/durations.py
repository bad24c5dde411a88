"""Durations as Go and Kubernetes write them: `300s`, `1h30m`, `250ms`. Pure.

Source: https://pkg.go.dev/time#ParseDuration.
"""

from __future__ import annotations

import re
from decimal import Decimal

UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
"""Seconds of each unit; micro has two signs in Unicode, Go takes both."""

LONGEST = Decimal(2**63 - 1) / 10**9
"""s; Go counts nanoseconds in an int64 (some 292 years)."""

LONGEST_TEXT = 64
"""Characters; a longer one is no honest duration."""

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
"""The syntax of a duration other than the bare `0`; the CustomResourceDefinition has it too."""


def parse_duration(text: str) -> float:
    """Seconds of a duration that is zero or positive. Raises ValueError that says what is wrong."""
    if text == "0":
        return 0.0
    if len(text) > LONGEST_TEXT or not DURATION.fullmatch(text):
        raise ValueError("must be a duration such as 300s, 10m or 1h30m")
    seconds = sum((Decimal(number) * UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0))
    if seconds > LONGEST:
        raise ValueError("must be less than 292 years")
    return float(seconds)


def format_duration(seconds: float) -> str:
    """The one spelling that makers use: seconds, with fractions only where there are any (`600s`, `0.5s`)."""
    return f"{format(Decimal(repr(seconds)).normalize(), 'f')}s"
