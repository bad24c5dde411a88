"""Short texts of numbers, times and digests. Pure."""

from __future__ import annotations

from typing import Final

_DIGEST: Final = 12  # hexadecimal digits; enough to tell versions apart

_LONGEST_URI: Final = 40  # characters


def outcome_text(outcome: str) -> str:
    """Return the outcome of a version in words.

    Example:
        >>> outcome_text("rolledback")
        'rolled back'
    """
    return "rolled back" if outcome == "rolledback" else outcome


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


def short_uri(uri: str) -> str:
    """Return a URI without the middle of a long path: its digest, not the path of a copy, identifies a version."""
    scheme, separator, path = uri.partition("://")
    parts = path.split("/")
    if len(uri) <= _LONGEST_URI or len(parts) < 4 or not separator:
        return uri
    return f"{scheme}://{parts[0]}/{'' if parts[0] else parts[1] + '/'}…/{parts[-1]}"
