"""When a server wants us back: the Retry-After header, bounded both ways. Pure."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime

SHORTEST = 1.0
"""s: no object is asked for more often than once a second by a server that is overloaded."""
LONGEST = 60.0
"""s: nobody is kept away for longer by one header."""


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds that the header asks for, None without one. What cannot be read counts as the shortest time."""
    if header is None:
        return None
    return min(max(_seconds(header.strip(), now), SHORTEST), LONGEST)


def _seconds(text: str, now: datetime) -> float:
    if text.isascii() and text.isdigit():
        return float(text[:9])  # more digits mean "very long" all the same
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return SHORTEST
    return (at - now).total_seconds() if at.tzinfo is not None else SHORTEST
