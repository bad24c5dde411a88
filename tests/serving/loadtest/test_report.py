"""Test the limits of a load test, its report, and the values of its options."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from serving.loadtest import arguments
from serving.loadtest.report import TOTAL, Report, Row, missed_limits


def row(version: str = TOTAL, kind: str = "infer", requests: int = 100, errors: int = 0, p95: float = 20.0) -> Row:
    return Row(version, kind, requests, errors, 10.0, p95, 30.0, 40.0)


@pytest.mark.parametrize(
    ("rows", "max_p95", "max_errors", "missed"),
    [
        ([row()], None, 0.0, []),
        ([row()], 20.0, 0.0, []),
        ([row()], 19.0, 0.0, ["p95 is 20 ms (limit 19 ms)"]),
        ([row(errors=1)], None, 0.0, ["1 of 100 requests failed, 1 % (limit 0 %)"]),
        ([row(errors=1)], None, 1.0, []),
        ([row(errors=2)], 1.0, 1.0, ["2 of 100 requests failed, 2 % (limit 1 %)", "p95 is 20 ms (limit 1 ms)"]),
        ([row("m-00001", p95=90.0), row()], 20.0, 0.0, []),
        ([row(kind="TTFT", p95=90.0), row(kind="chat")], 20.0, 0.0, []),
        ([], None, 100.0, ["no request was completed: choose a longer duration or a higher rate"]),
    ],
)
def test_a_limit_is_for_all_requests_together(
    rows: list[Row], max_p95: float | None, max_errors: float, missed: list[str]
) -> None:
    assert missed_limits(rows, max_p95, max_errors) == missed


def test_a_report_is_read_as_it_was_written() -> None:
    report = Report(5.0, 50.0, 49.8, [row("m-00001"), row()], {"m-00001: 503: busy": 2}, ["p95"])

    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (arguments.parse_rate, "0.5", 0.5),
        (arguments.parse_share, "0.5", 0.5),
        (arguments.parse_share, "1%", 1.0),
        (arguments.parse_latency, "250", 250.0),
        (arguments.parse_latency, "1.5s", 1500.0),
        (arguments.parse_seconds, "1m30s", 90.0),
        (arguments.parse_header, "host: a.b", ("Host", "a.b")),
        (arguments.parse_header, "X-Key:1:2", ("X-Key", "1:2")),
    ],
)
def test_values_of_options(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((arguments.parse_rate, text) for text in ("0", "-1", "nan", "inf", "1e5", "", "fast")),
        *((arguments.parse_share, text) for text in ("-1", "101", "nan", "%")),
        *((arguments.parse_latency, text) for text in ("0", "-5", "nan", "inf", "0s", "soon")),
        *((arguments.parse_seconds, text) for text in ("0s", "10", "25h", "-1s")),
        *((arguments.parse_header, text) for text in ("a", ":b", "a: b\r\nc: d", "ä: b")),
    ],
)
def test_bad_values_of_options_are_refused(parse: Callable[[str], Any], text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse(text)
