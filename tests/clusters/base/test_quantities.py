"""Quantities: accepted and refused texts, and one spelling for each value."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.quantities import canonical_quantity, format_cores, parse_quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1k"),
        ("1000k", "1M"),
        ("0.5Ki", "512"),
        ("0", "0"),
    ],
)
def test_equal_quantities_get_one_spelling(text: str, canonical: str) -> None:
    assert canonical_quantity(text) == canonical


@pytest.mark.parametrize("text", ["", "-1", "1Q", "1 Gi", "Gi", "1gi", "1e", "nan", "inf", "9E99", "1" * 40])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|too large"):
        parse_quantity(text)


@given(st.integers(1, 10**6), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_the_canonical_spelling_has_the_same_value_and_is_stable(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    canonical = canonical_quantity(text)
    assert parse_quantity(canonical) == parse_quantity(text)
    assert canonical_quantity(canonical) == canonical


def test_cores_are_plain_decimals() -> None:
    assert [format_cores(text) for text in ("1", "500m", "2.5", "10")] == ["1", "0.5", "2.5", "10"]
    assert Decimal(format_cores("100")) == 100
