"""Test the page of figures and its record."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from loadtests.bench.figure import Figure
from loadtests.bench.machine import Machine, cpu_model, described
from loadtests.bench.page import PAGE, PARTS, page
from loadtests.bench.record import RECORD, Part, keep, read_record

MACHINE = Machine("Some CPU", 2, 8, "6.1.0", "3.11.7", ("numpy 2.2",))
OTHER = Machine("Another CPU", 4, 16, "6.1.0", "3.12.1", ())
README = Path(__file__).parents[2] / "README.md"


def part(*figures: Figure, machine: Machine = MACHINE) -> Part:
    return Part("2026-01-02", machine, list(figures))


def test_a_new_measurement_replaces_only_its_part(tmp_path: Path) -> None:
    path = tmp_path / "performance.json"
    old = part(Figure("up to ready", 1.23456789, "s", 1.5))
    keep({"start": old, "idle": part(Figure("idle", 0.5, "%", 2))}, path)
    kept = keep({"idle": part(Figure("idle", 1.0, "%", 2), machine=OTHER)}, path)

    assert kept == read_record(path)
    assert kept["start"].figures == [Figure("up to ready", 1.235, "s", 1.5)]
    assert (kept["idle"].machine, kept["idle"].figures[0].value) == (OTHER, 1.0)


def test_a_record_of_another_shape_is_refused_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "performance.json"
    path.write_text('{"start": {"day": "2026-01-02"}}')
    with pytest.raises(ValueError, match=r"part 'start' of the record cannot be read .*make bench"):
        read_record(path)


def test_each_figure_has_its_aim_and_machine() -> None:
    told = page(
        {"start": part(Figure("up to ready", 1.2, "s", 1.5)), "idle": part(Figure("  idle", 3, "%", 2), machine=OTHER)}
    )
    assert "| up to ready | 1.2 | s | ≤ 1.5 s | ok |" in told
    assert "| ↳ idle | 3 | % | ≤ 2 % | **missed** |" in told
    assert f"Machine 1: {MACHINE}." in told
    assert "(2026-01-02, machine 2)" in told
    assert told.count("Not measured yet") == len(PARTS) - 2


def test_peers_are_in_one_table_with_proportional_bars() -> None:
    figures = [
        Figure("ONNX: Knodel, 16 connections", 3000.0, "1/s"),
        Figure("ONNX: KServe, silenced, 16 connections", 1000.0, "1/s"),
        Figure("  ONNX: Knodel to KServe, rate", 3.0, "x", 2.0, least=True),
    ]
    told = page({"server": part(*figures)})
    assert "| ONNX, 16 connections (1/s) | | |\n|---|--:|---|\n" in told
    assert f"| Knodel | 3,000 | {'█' * 24} |\n| KServe, silenced | 1,000 | {'█' * 8} |\n" in told
    assert "| ↳ ONNX: Knodel to KServe, rate | 3 | x | ≥ 2 x | ok |" in told


def test_the_page_matches_its_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_record(RECORD)), (
        "write it anew: python -m loadtests.bench.page"
    )


def test_no_part_of_the_page_is_without_figures() -> None:
    assert set(read_record(RECORD)) == set(PARTS)


def test_a_machine_is_described_without_identifying_names() -> None:
    here = str(described())
    assert re.search(r", \d+ cores, \d+ GiB, Linux \d+\.\d+\S*, Python 3\.\d+\.\d+; numpy \d", here)
    assert socket.gethostname() not in here


def test_the_cpu_model_is_read_or_its_architecture_used() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n") == "Some CPU @ 2 GHz"
    assert cpu_model("processor\t: 0\n")


def test_the_readme_contains_no_figures() -> None:
    text = README.read_text(encoding="utf-8")
    assert "(docs/evidence/README.md)" in text
    assert not re.search(r"\d ?(times|x) (faster|as|the)|faster than|(requests|events) (a|per) second", text)
