"""Test that `python -m loadtests.simulate` prints a table and writes plots."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from loadtests.bench.figure import Figure
from loadtests.simulate.__main__ import main
from loadtests.simulate.chart import decades, ticks
from loadtests.simulate.knative import Knative
from loadtests.simulate.outcome import Outcome
from loadtests.simulate.plots import thinned
from loadtests.simulate.report import REQUIREMENTS, Requirement, figures
from loadtests.simulate.simulation import Simulation
from tests.simulate.workloads import workload

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2026-01-01 00:{second // 60:02d}:{second % 60:02d},400,{second % 90}\n" for second in range(0, 600, 2)
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "steady.csv"
    path.write_text(TRACE)
    return str(path)


def test_all_policies_are_compared_on_any_trace(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", trace, "--start", "5"]) == 0
    said = capsys.readouterr().out
    assert "steady: 300 requests in 0.17 h, 8 slots per replica, ready after 5 s" in said
    rows = [line for line in said.splitlines() if "%" in line]
    assert [row[:8].strip() for row in rows] == ["Knodel", "Knative", "best pos", "oracle,"]


def test_plots_are_well_formed_and_show_every_policy(trace: str, tmp_path: Path) -> None:
    main(
        [
            "--trace",
            trace,
            "--start",
            "5",
            "--plots",
            str(tmp_path / "plots"),
            "--policy",
            "knative",
            "--policy",
            "best",
        ]
    )
    root = ElementTree.parse(tmp_path / "plots" / "steady-5s.svg").getroot()  # noqa: S314 - written above
    lines = [element for element in root.iter() if element.tag.endswith("}path")]
    assert len(lines) == 2 * 3  # two policies in three panels
    assert all(line.attrib["d"].startswith("M") and "nan" not in line.attrib["d"] for line in lines)


def test_an_invalid_trace_and_an_invalid_override_exit_with_2(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", "nowhere.csv"]) == 2
    assert "nowhere.csv: cannot be read as a trace" in capsys.readouterr().err
    assert main(["--trace", trace, "--with", "scaleTarget=-1"]) == 2
    assert "scaleTarget" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--start", "0"], ["--spread", "-1"], ["--slots", "0"], ["--with", "min"], ["--policy", "magic"]]
)
def test_options_out_of_range_exit_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2


def test_a_pool_is_billed_and_shortens_the_first_wait(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trace", trace, "--start", "30", "--policy", "knodel"])
    main(["--trace", trace, "--start", "30", "--policy", "knodel", "--pool", "2"])
    without, beside = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("Knodel")]
    assert (without[7], beside[7]) == ("0.00", "0.33")  # 2 members for 10 minutes
    assert float(beside[4]) <= float(without[4])


def test_missed_requirements_are_reported() -> None:
    ours, theirs = outcome(start=30.0), outcome(start=1.0)
    found = list(
        figures(
            Requirement(immediate=0.99, hours=1.1, below_best=0.01), {"knodel": ours, "knative": theirs, "best": theirs}
        )
    )
    assert [(figure.aim, figure.missed) for figure in found] == [
        (99.0, True),
        (round(100 * theirs.immediate - 1.0, 3), True),
        (round(1.1 * theirs.hours, 3), ours.hours > 1.1 * theirs.hours),
    ]
    assert not Figure("as good as aimed", 99.0, "%", 99.0, least=True).missed


def test_requirements_relative_to_a_policy_that_was_not_run_are_omitted() -> None:
    ours = outcome(start=1.0)
    assert [figure.what for figure in figures(REQUIREMENTS["code", 30.0], {"knodel": ours})] == ["wait at most 1 s"]
    assert list(figures(REQUIREMENTS["code", 30.0], {"best": ours})) == []


def test_ticks_are_round_and_decades_powers_of_ten() -> None:
    assert ticks(7.3) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert ticks(200.0) == [0.0, 50.0, 100.0, 150.0, 200.0]
    assert decades(0.01, 30.0) == pytest.approx([0.01, 0.1, 1.0, 10.0])


def test_a_long_line_keeps_its_peaks() -> None:
    values = [0] * 10_000
    values[5_432] = 9
    points = thinned(values)
    assert len(points) <= 900
    assert max(value for _, value in points) == 9.0


def outcome(start: float) -> Outcome:
    return Simulation(workload([0.0, 0.5, 40.0, 40.1], 1.0, start=start), Knative(1)).run("tested")
