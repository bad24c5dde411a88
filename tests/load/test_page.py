"""Test the report: one self-contained page."""

from __future__ import annotations

import re

import numpy as np
import pytest

from loadtests.bench.figure import Figure
from loadtests.load.__main__ import main
from loadtests.load.page import page
from loadtests.load.responses import Responses
from loadtests.load.result import ScenarioResult, charts_of, figures_of, notes_of, replicas_chart


@pytest.fixture
def responses() -> Responses:
    due = np.arange(0.0, 10.0, 0.1)
    status = np.full(len(due), 200)
    status[40:50] = 503
    errors = ["<script>no replica</script>" if code == 503 else "" for code in status]
    return Responses(5.0, due, np.full(len(due), 0.1), status, np.zeros(len(due), np.int64), errors)


@pytest.fixture
def told(responses: Responses) -> str:
    charts = [*charts_of(responses), replicas_chart([(0.0, 1.0), (5.0, 2.0)])]
    bad = ScenarioResult("burst", "Some & more.", figures_of(responses), charts, notes_of(responses))
    return page("Under load", "a machine", [ScenarioResult("steady", "Even.", [Figure("p95", 1.0, "ms", 2.0)]), bad])


def test_every_scenario_has_its_verdict_and_figures(told: str) -> None:
    assert re.findall(r'href="#(\w+)">\w+</a></td><td><span class="(\w+)"', told) == [
        ("steady", "ok"),
        ("burst", "missed"),
    ]
    assert '<td>success rate</td><td class="number">90</td><td>%</td><td>aim ≥ 100 %' in told
    assert told.count("<svg") == 3


def test_the_page_loads_no_files_and_runs_no_scripts(told: str) -> None:
    assert not re.search(r'(src|href)="(?!#)', told)
    assert "<script" not in told
    assert "10 times: 503 &lt;script&gt;" in told
    assert "nan" not in told
    assert "inf" not in re.sub(r"[a-z]+inf|inf[a-z]+", "", told)


def test_a_scenario_without_a_successful_response_has_a_page(responses: Responses) -> None:
    none = Responses(
        0.0, responses.due, responses.took, np.zeros_like(responses.status), responses.which, responses.errors
    )
    assert "nan" not in page("x", "y", [ScenarioResult("none", "", figures_of(none), charts_of(none), notes_of(none))])


def test_an_unknown_scenario_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "storm"])
    assert "choose from 'steady', 'burst', 'diurnal', 'trace', 'rollout', 'chaos', 'gateway'" in capsys.readouterr().err
