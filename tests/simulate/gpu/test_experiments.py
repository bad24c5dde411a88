"""Test the experiments: that the baselines come out as published, and Knodel's aims, at their full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.gpu.claims import Place
from loadtests.gpu import edl
from loadtests.gpu.__main__ import main
from loadtests.gpu.evidence import markdown
from loadtests.gpu.fleet import FleetModel, bill
from loadtests.gpu.kueue import play_cohort
from loadtests.gpu.policies import Edl, Fixed, Knodel
from loadtests.gpu.scenarios import elasticdl, volcano
from loadtests.gpu.work import RESOURCE, Allocated, Work, fixed, play


def test_fairness_is_one_for_equal_shares_and_one_nth_if_one_has_everything() -> None:
    assert edl.jain_index([3, 3, 3]) == 1.0
    assert edl.jain_index([6, 0, 0]) == pytest.approx(1 / 3)
    assert edl.jain_index([0, 0]) == 1.0


def test_the_baselines_of_edl_come_out_as_published() -> None:
    off, theirs = edl.case_2(Fixed()), edl.case_2(Edl())
    assert off.use(0, 550) == pytest.approx(61.9, abs=3.0)
    assert theirs.use(0, 550) == pytest.approx(83.4, abs=3.0)
    assert theirs.missing() == pytest.approx(0.232, abs=0.04)


def test_servers_get_their_units_back_and_jobs_share_evenly_under_knodel() -> None:
    seen = edl.case_2(Knodel(), edl.with_end(edl.Sizes(), 5.0))
    assert seen.missing() <= 0.06
    assert max(seen.waits_of_steps()) <= 5.0 + 9.0 + 2.0 + 100 / 12.0
    assert seen.jain(*edl.JAIN) >= 0.99
    assert seen.below_minimum == 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert edl.case_1(Knodel(), jobs=4) == edl.case_1(Knodel(), jobs=4)


def test_a_job_that_fits_in_part_starts_at_once_only_with_the_allocator() -> None:
    ends = []
    for size in (fixed(4), Allocated([Place("all", RESOURCE, 4)])):
        jobs = [Work("Job a/a", 0.0, 30.0, 1, 3), Work("Job a/b", 0.0, 30.0, 1, 3)]
        play(jobs, size, 100.0)
        ends.append([(job.began, job.ended) for job in jobs])
    assert ends == [[(0.0, 10.0), (10.0, 20.0)], [(0.0, 15.0), (0.0, 15.0)]]


def test_elastic_jobs_and_gangs_have_their_aims() -> None:
    for result in (elasticdl(), volcano()):
        assert [str(figure) for figure in result.figures if figure.missed] == []


def test_larger_workloads_of_a_higher_priority_do_not_wait() -> None:
    found = play_cohort(share=0.2)
    assert found.admission["large"] <= found.admission["medium"] <= found.admission["small"]
    assert found.wall >= 0.2 * 66.0


def test_models_with_peaks_at_different_times_need_half_the_nodes() -> None:
    day, night = [8] * 10 + [0] * 10, [0] * 10 + [8] * 10
    found = bill([FleetModel("Model a/day", 1, day), FleetModel("Model a/night", 1, night)])
    assert (found.own, found.pool, found.missing, found.saved) == (2, 1, 0.0, 50.0)


def test_the_command_prints_figures_and_writes_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volcano", "--report", str(tmp_path)]) == 0
    assert "weights 1 : 3, together: idle units" in capsys.readouterr().out
    assert "volcano" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_options_that_do_not_fit_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["kueue", "--case", "1"])
    assert "--case needs the scenario edl" in capsys.readouterr().err


def test_the_page_marks_missed_aims() -> None:
    assert "| ≤ 70 ok |" in markdown([volcano()])
