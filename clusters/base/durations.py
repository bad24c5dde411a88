"""Durations in the syntax of Go and Kubernetes: `300s`, `1h30m`, `250ms`. Pure.

Source: https://pkg.go.dev/time#ParseDuration. There are two deviations: a sign is refused unless the caller allows it,
and a text is at most `LONGEST_TEXT` characters long.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
"""Of each unit. Unicode has two characters for micro, U+00B5 and U+03BC; Go accepts both."""

_LONGEST: Final = 2**63 - 1
"""ns, about 292 years: Go counts nanoseconds in an int64."""

LONGEST_TEXT: Final = 64
"""Characters."""

_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
"""The syntax of a duration without a sign, other than the bare `0`. The CustomResourceDefinitions use it too."""


def parse_duration(text: str, *, signed: bool = False) -> float:
    """Return the seconds of a duration, zero or positive unless `signed`. Fractions of a nanosecond are dropped.

    Raises ValueError with the allowed syntax, as in "must be a duration such as 300s, 10m or 1h30m".

    Example:
        parse_duration("1h30m")              # 5400.0
        parse_duration("-2s", signed=True)   # -2.0
    """
    sign = text[0] if signed and text[:1] in ("+", "-") else ""
    unsigned = text[len(sign) :]
    if unsigned == "0":
        return 0.0
    if len(text) > LONGEST_TEXT or not DURATION.fullmatch(unsigned):
        raise ValueError("must be a duration such as 300s, 10m or 1h30m")
    nanoseconds = sum(int(Decimal(number) * _NANOSECONDS[unit]) for number, unit in _PART.findall(unsigned))
    if nanoseconds > _LONGEST + (sign == "-"):
        raise ValueError("must be less than 292 years")
    return (-nanoseconds if sign == "-" else nanoseconds) / 10**9


def format_duration(seconds: float) -> str:
    """Return the duration in seconds, with a fraction only where there is one: `600s`, `0.5s`."""
    return f"{format(Decimal(repr(seconds)).normalize(), 'f')}s"
