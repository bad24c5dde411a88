"""Test that traces are read, or rejected with the line of the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtests.simulate.trace import Trace, open_trace, read_trace
from loadtests.simulate.workload import workload_of
from serving.loadtest.traces import InvalidTrace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_the_included_traces_equal_the_published_ones() -> None:
    code, conv = open_trace("code"), open_trace("conv")
    assert (len(code.arrivals), len(conv.arrivals)) == (8_819, 19_366)
    assert code.arrivals[:2].tolist() == pytest.approx([0.0, 0.052], abs=1e-6)
    assert (code.context[0], code.generated[0]) == (4_808, 10)
    assert (np.diff(conv.arrivals) >= 0.0).all()


def test_rows_may_come_in_any_order_with_other_columns_and_zones(tmp_path: Path) -> None:
    text = (
        "Model,ContextTokens,TIMESTAMP,GeneratedTokens\na,4,2024-05-10 00:00:02+00:00,1\nb,8,2024-05-10 00:00:00Z,2\n"
    )
    trace = read_trace(written(tmp_path, text))
    assert trace.name == "mine"
    assert trace.arrivals.tolist() == [0.0, 2.0]
    assert trace.context.tolist() == [8.0, 4.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine.csv:1: has no column TIMESTAMP and no column ContextTokens"),
        ("time,tokens\n1,2\n", "mine.csv:1: has no column TIMESTAMP"),
        (HEADER, "mine.csv: has no request"),
        (HEADER + "yesterday,1,2\n", "mine.csv:2: TIMESTAMP must be a time like .*, not 'yesterday'"),
        (
            HEADER + "2023-11-16 18:17:03,1,2\n2023-11-16 18:17:04,x,2\n",
            "mine.csv:3: ContextTokens must be .*, not 'x'",
        ),
        (HEADER + "2023-11-16 18:17:03,1,-2\n", "mine.csv:2: GeneratedTokens must be .*, not '-2'"),
        (HEADER + "2023-11-16 18:17:03,1\n", "mine.csv:2: GeneratedTokens must be .*, not None"),
        (HEADER + "2023-11-16 18:17:03,1,nan\n", "mine.csv:2: GeneratedTokens must be .*, not 'nan'"),
    ],
)
def test_an_invalid_trace_is_rejected_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidTrace, match=message):
        read_trace(written(tmp_path, text))


def test_a_missing_or_binary_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match=r"nothing.csv: cannot be read as a trace"):
        open_trace(str(tmp_path / "nothing.csv"))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InvalidTrace, match=r"binary.csv: cannot be read as a trace"):
        read_trace(tmp_path / "binary.csv")


def test_faster_keeps_the_requests() -> None:
    trace = open_trace("code")
    faster = trace.faster(4.0)
    assert faster.arrivals[-1] == pytest.approx(trace.arrivals[-1] / 4.0)
    assert faster.context is trace.context


def test_shuffling_keeps_bursts_pauses_and_length() -> None:
    trace = open_trace("code")
    shuffled = trace.shuffled(7)
    assert shuffled.arrivals.tolist() != trace.arrivals.tolist()
    assert shuffled.arrivals[-1] == pytest.approx(trace.arrivals[-1])
    assert np.sort(np.diff(shuffled.arrivals)) == pytest.approx(np.sort(np.diff(trace.arrivals)), abs=1e-6)
    assert sorted(shuffled.context) == sorted(trace.context)
    assert shuffled.arrivals.tolist() == trace.shuffled(7).arrivals.tolist()


def test_service_time_follows_tokens() -> None:
    trace = Trace("mine", np.array([0.0, 1.0]), np.array([1_000.0, 0.0]), np.array([10.0, 0.0]))
    assert workload_of(trace, 30.0).service.tolist() == pytest.approx([0.25 + 0.25, 0.001])
