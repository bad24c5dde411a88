"""Durations, read by the rules of Go's `time.ParseDuration`. The expected values were computed by Go 1.26."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.durations import LONGEST_TEXT, format_duration, parse_duration

LONGEST = 2**63 - 1
UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
REFUSED = [
    "", ".", "s", ".s", "1", "60", "1.5", "00", "1d", "1H", "ten", "1µ", "1hm", "1h3", "1msx",
    " 1s", "1s ", "1 s", "1h 30m", "1m 30s", "1s\n", "0\n", " 0",
    "٣s", "1e3s", "1_0s", "0x1s", "1.2.3s", "1,5s", "inf", "NaN", "1h-1m", "--1s", "+-1s", "-", "+", "-.s",
]  # fmt: skip
TOO_LONG = ["9223372036854775808ns", "2562047h47m16.854775808s", "3000000h"]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("300s", 300_000_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("1.s", 1_000_000_000),
        (".5s", 500_000_000),
        ("7ns", 7),
        ("5us", 5_000),
        ("5\u00b5s", 5_000),
        ("5\u03bcs", 5_000),
        ("250ms", 250_000_000),
        ("2m2s2ms2us2ns", 122_002_002_002),
        ("1s1s", 2_000_000_000),
        ("1s1h", 3_601_000_000_000),
        ("00001s", 1_000_000_000),
        ("0.1ns", 0),
        ("1.9ns", 1),
        ("0.9ns0.9ns", 0),
        ("1.0000000019s", 1_000_000_001),
        ("0.333333333333h", 1_199_999_999_998),
        ("9223372036854775807ns", LONGEST),
        ("2562047h47m16.854775807s", LONGEST),
    ],
)
def test_durations_have_the_value_that_go_computes(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds / 10**9
    assert parse_duration(f"+{text}", signed=True) == nanoseconds / 10**9
    assert parse_duration(f"-{text}", signed=True) == -nanoseconds / 10**9


@pytest.mark.parametrize("text", REFUSED)
def test_other_texts_are_refused(text: str) -> None:
    for signed in (False, True):
        with pytest.raises(ValueError, match="must be a duration"):
            parse_duration(text, signed=signed)


@pytest.mark.parametrize("text", ["-1s", "+1s", "-0", "+0"])
def test_a_sign_is_refused_unless_it_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)
    assert abs(parse_duration(text, signed=True)) in (0.0, 1.0)


@pytest.mark.parametrize("text", TOO_LONG)
def test_durations_beyond_an_int64_are_refused(text: str) -> None:
    for signed in (False, True):
        with pytest.raises(ValueError, match="must be less than 292 years"):
            parse_duration(text, signed=signed)


def test_the_shortest_negative_duration_is_that_of_an_int64() -> None:
    assert parse_duration("-9223372036854775808ns", signed=True) == -(2**63) / 10**9


def test_long_texts_are_refused() -> None:
    assert parse_duration("0" * (LONGEST_TEXT - 2) + "1s") == 1.0
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration("0" * (LONGEST_TEXT - 1) + "1s")


NUMBERS = st.one_of(
    st.integers(0, 9999).map(str),
    st.tuples(st.integers(0, 9999), st.from_regex("[0-9]{0,6}", fullmatch=True)).map(lambda two: f"{two[0]}.{two[1]}"),
    st.from_regex(r"\.[0-9]{1,6}", fullmatch=True),
)


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(sorted(UNITS))), min_size=1, max_size=4))
def test_every_text_of_the_grammar_is_the_sum_of_its_parts(parts: list[tuple[str, str]]) -> None:
    text = "".join(number + unit for number, unit in parts)
    expected = sum(int(Fraction(f"0{number}".rstrip(".")) * UNITS[unit]) for number, unit in parts)
    assert parse_duration(text) == expected / 10**9


@given(st.integers(0, 10**9))
def test_a_formatted_duration_reads_back_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000
