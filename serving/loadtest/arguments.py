"""The values of options of load tests, as `knodel bench` and the locust file take them. Pure."""

from __future__ import annotations

import math
from typing import Final, get_args

from clusters.base.durations import parse_duration
from serving.loadtest.rates import Shape

SHAPES: Final = get_args(Shape)
RATE: Final = 10.0
"""Requests per second by default."""
SECONDS: Final = 60.0
"""Duration by default."""
TIMEOUT: Final = 60.0
"""s until the whole response."""
MAX_RATE: Final = 10_000.0
"""Requests per second; locust sends a few thousand from one core."""
MAX_SECONDS: Final = 24 * 3600.0
_HEADER_END: Final = frozenset("\r\n\0")


def parse_rate(text: str) -> float:
    """Return requests per second. Raises ValueError."""
    return _number(text, MAX_RATE, "requests per second such as 50", above_zero=True)


def parse_share(text: str) -> float:
    """Return per cent. Raises ValueError."""
    return _number(text.removesuffix("%"), 100.0, "per cent such as 0.5")


def parse_latency(text: str) -> float:
    """Return ms of a duration, or of a number of ms. Raises ValueError.

    Example:
        >>> parse_latency("1.5s"), parse_latency("250")
        (1500.0, 250.0)
    """
    try:
        found = float(text)
    except ValueError:
        found = 1000.0 * parse_duration(text)
    if not 0 < found < math.inf:
        raise ValueError(f"must be above 0, such as 250ms, not {text!r}")
    return found


def parse_seconds(text: str) -> float:
    """Return the whole seconds of a duration. Raises ValueError."""
    seconds = parse_duration(text)
    if not 1.0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"must be from 1s to 24h, not {text}")
    return float(round(seconds))


def parse_header(text: str) -> tuple[str, str]:
    """Return name and value of a header `NAME: VALUE`; the name Host has this case. Raises ValueError."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not name or not name.isascii() or not value.isascii() or _HEADER_END & {*text}:
        raise ValueError(f"must be NAME: VALUE in ASCII on one line, not {text!r}")
    return "Host" if name.lower() == "host" else name, value


def _number(text: str, most: float, wanted: str, *, above_zero: bool = False) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0.0 <= found <= most or (above_zero and not found):
        low = "above 0 and at most" if above_zero else "from 0 to"
        raise ValueError(f"must be {wanted}, {low} {most:g}, not {text!r}")
    return found
