"""Test the shapes of loads, and the users that they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.loadtest.arguments import SHAPES
from serving.loadtest.load import Kind, make_load
from serving.loadtest.rates import Shape, by_second, make_rate, replay
from serving.loadtest.traces import InvalidTrace, read_arrivals

RECORDED = [0.0, 1.0, 1.5, 4.0, 50.0]


@pytest.mark.parametrize(
    ("shape", "moment", "expected"),
    [
        ("steady", 0.0, 50.0),
        ("steady", 59.0, 50.0),
        ("burst", 0.0, 5.0),
        ("burst", 14.9, 5.0),
        ("burst", 15.0, 50.0),  # the last quarter of each third
        ("burst", 20.0, 5.0),
        ("burst", 59.9, 50.0),
        ("diurnal", 0.0, 2.5),
        ("diurnal", 30.0, 50.0),
        ("diurnal", 60.0, 2.5),
    ],
)
def test_a_shape_has_its_rate_at_a_time(shape: Shape, moment: float, expected: float) -> None:
    assert make_rate(shape, 50.0, 60.0)(moment) == pytest.approx(expected)


def test_a_trace_keeps_its_proportions_at_the_rate_of_the_caller() -> None:
    assert replay(RECORDED, seconds=2.0, rate=2.0) == pytest.approx([0.0, 0.5, 0.75])
    rate = make_rate("trace", 2.0, 2.0, RECORDED)
    assert [rate(moment) for moment in (0.0, 0.9, 1.0)] == [3.0, 3.0, 0.0]
    assert by_second([])(0.0) == 0.0


def test_a_trace_of_one_time_is_one_burst() -> None:
    assert replay([0.0, 0.0, 0.0, 0.0], seconds=2.0, rate=2.0) == [0.0, 0.0, 0.0, 0.0]
    assert replay([], seconds=2.0, rate=2.0) == []


@pytest.mark.parametrize("kind", ["infer", "chat"])
@pytest.mark.parametrize("rate", [0.1, 1.0, 7.3, 50.0, 1000.0])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "trace"])
def test_the_users_of_a_load_have_its_rate_together(shape: Shape, rate: float, kind: Kind) -> None:
    load = make_load(shape, rate, 60.0, kind)

    sent = sum(load.users_at(float(second)) * load.pace for second in range(60))

    assert sent == pytest.approx(60.0 * load.average(0.0, 60.0), rel=0.05)
    assert load.peak_users >= 20
    assert load.pace <= (1.0 if kind == "infer" else 0.1)


def test_a_burst_shorter_than_a_second_has_users() -> None:
    load = make_load("burst", 40.0, 6.0, "infer")

    assert [load.users_at(float(second)) for second in range(6)] == [4, 22, 4, 22, 4, 22]


def test_a_trace_without_requests_in_its_time_has_no_users() -> None:
    assert make_load("trace", 0.001, 5.0, "infer", [0.0, 90.0]).peak_users > 0  # its first request
    assert make_load("trace", 1.0, 5.0, "infer", []).peak_users == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1: has no column TIMESTAMP"),
        ("time\n1\n", ":1: has no column TIMESTAMP"),
        ("TIMESTAMP\n", "has no request"),
        ("TIMESTAMP\n2026-01-01\nsoon\n", ":3: TIMESTAMP must be a time like .* not 'soon'"),
    ],
)
def test_a_broken_trace_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(content)

    with pytest.raises(InvalidTrace, match=message):
        read_arrivals(file)


def test_times_in_any_order_and_zone_are_arrivals_since_the_first(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("x,TIMESTAMP\n1,2026-01-01T00:00:02.5\n2,2026-01-01 01:00:00+01:00\n")

    assert read_arrivals(file) == [0.0, 2.5]
