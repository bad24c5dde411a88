"""The Retry-After header of HTTP: whole seconds, or a date. Pure.

Source: RFC 9110, section 10.2.3.
"""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

_DIGITS: Final = 9
"""A number with more digits is cut; it exceeds any sensible bound all the same."""


def parse_retry_after(header: str | None, now: datetime, *, least: float, most: float) -> float | None:
    """Return the seconds to wait, at least `least` and at most `most`; None for an absent or invalid header.

    `now` has a time zone; a date in the past is `least` seconds.

    Example:
        parse_retry_after("120", now, least=1.0, most=60.0)  # 60.0
    """
    text = "" if header is None else header.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text if len(text) <= _DIGITS else "9" * _DIGITS)
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        if at.tzinfo is None:
            return None
        seconds = (at - now).total_seconds()
    return min(max(seconds, least), most)
