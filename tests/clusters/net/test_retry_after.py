"""The Retry-After header: seconds, dates, bounds, and invalid texts."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.net.retry_after import parse_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("1e9", None),
        ("٣", None),
        ("Thu, 01 Jan 2026 00:00:20 -0000", None),
        ("Thu, 01 Jan 2026 00:00:20 +99999999999999999999", None),
        ("3", 3.0),
        (" 3 ", 3.0),
        ("0", 1.0),
        ("0000000000000000000003", 60.0),
        ("9" * 5000, 60.0),
        (format_datetime(datetime(2026, 1, 1, 0, 0, 20, tzinfo=UTC), usegmt=True), 20.0),
        ("Thursday, 01-Jan-26 00:00:20 GMT", 20.0),
        ("Thu Jan  1 00:00:20 2026 GMT", 20.0),
        (format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), 1.0),
        (format_datetime(datetime(2030, 1, 1, tzinfo=UTC), usegmt=True), 60.0),
    ],
)
def test_retry_after_in_every_form(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, NOW, least=1.0, most=60.0) == seconds


@given(st.text(max_size=40))
def test_any_text_is_within_bounds_or_invalid(header: str) -> None:
    seconds = parse_retry_after(header, NOW, least=1.0, most=60.0)
    assert seconds is None or 1.0 <= seconds <= 60.0
