"""Short texts of numbers, times and digests. Pure."""

from __future__ import annotations

from typing import Final

_DIGEST: Final = 12  # hexadecimal digits; enough to tell versions apart


def milliseconds(seconds: float | None) -> str:
    """Return a duration in milliseconds with three digits; empty for None."""
    return "" if seconds is None else f"{seconds * 1000:.3g} ms"


def share(value: float | None) -> str:
    """Return a share of 1 in percent; empty for None."""
    return "" if value is None else f"{value:.1%}"


def short_time(at: str) -> str:
    """Return an RFC 3339 time to the second, as `2026-11-26 04:25:00`; other texts unchanged."""
    return f"{at[:10]} {at[11:19]}" if len(at) >= 19 and at[10] == "T" else at


def short_digest(digest: str) -> str:
    """Return the first digits of a digest, without its algorithm."""
    return digest.partition(":")[2][:_DIGEST]
