"""Reading and judging the results of Knative's own tests; the running itself is tests/cluster/test_conformance.py."""

from __future__ import annotations

import json
import re

import pytest

from tests.testbed import conformance, conformance_images, conformance_results
from tests.testbed.conformance_results import Result
from tests.testbed.errors import TestbedError
from tests.testbed.versions import CONFORMANCE

OURS = conformance.OURS
KPA = conformance.KPA


def event(action: str, test: str = "", **more: object) -> str:
    return json.dumps({"Action": action, "Test": test} | more)


def line(outcome: str, test: str = "TestA", classes: str = "") -> str:
    return f'[[test]]\nsuite = "api"\ntest = "{test}"\noutcome = "{outcome}"\nreason = "it is so"\n{classes}\n'


def judged(outcome: str, text: str, autoscaler_class: str = OURS, test: str = "TestA") -> list[str]:
    table = conformance_results.expectations(text)
    return conformance_results.deviations([Result("api", test, outcome)], table, autoscaler_class)


def test_a_test_is_read_with_its_outcome_its_seconds_and_its_words() -> None:
    lines = [
        event("run", "TestA"),
        event("output", "TestA", Output="=== RUN   TestA\n"),
        event("output", "TestA", Output="    a_test.go:1: no answer\n"),
        event("output", "TestA", Output="--- FAIL: TestA (1.50s)\n"),
        event("fail", "TestA", Elapsed=1.5),
        event("fail", Elapsed=2.0),
    ]
    assert conformance_results.read("api", lines) == [
        Result("api", "TestA", "fail", 1.5, ["    a_test.go:1: no answer"])
    ]


def test_a_test_that_the_suite_did_not_come_to_end_is_unfinished() -> None:
    (result,) = conformance_results.read("api", [event("run", "TestA"), "panic: test timed out after 1s"])
    assert result.outcome == conformance_results.UNFINISHED
    assert judged(result.outcome, "") == ["api TestA: unfinished, expected pass"]


def test_what_is_in_no_line_of_the_table_has_to_pass() -> None:
    assert judged("pass", "") == []
    assert judged("fail", "") == ["api TestA: fail, expected pass"]
    assert judged("skip", "") == ["api TestA: skip, expected pass"]


def test_what_is_in_the_table_has_to_end_as_it_says() -> None:
    assert judged("fail", line("fail")) == []
    assert judged("pass", line("fail")) == ["api TestA: pass, expected fail"]


def test_a_line_may_be_about_some_classes_only() -> None:
    text = line("fail", classes=f'classes = ["{KPA}"]')
    assert judged("fail", text, KPA) == []
    assert judged("fail", text, OURS) == ["api TestA: fail, expected pass"]


def test_a_subtest_is_judged_by_its_test_and_shown_when_it_fails() -> None:
    assert judged("fail", "", test="TestA/of_two") == []
    results = [
        Result("api", "TestA", "fail"),
        Result("api", "TestA/of_two", "fail"),
        Result("api", "TestA/of_one", "pass"),
    ]
    shown = conformance_results.table(results, [], OURS)
    assert "TestA/of_two" in shown
    assert "TestA/of_one" not in shown


def test_the_table_gives_the_reason_of_what_is_expected_and_the_last_words_of_what_is_not() -> None:
    expected = conformance_results.expectations(line("skip"))
    results = [Result("api", "TestA", "skip", 0.1), Result("api", "TestB", "fail", 2.0, ["    no answer"])]
    first, second = conformance_results.table(results, expected, OURS).splitlines()[1:]
    assert first.endswith("it is so")
    assert second.endswith("no answer")


def test_a_line_without_a_reason_or_with_another_outcome_is_refused() -> None:
    with pytest.raises(TestbedError, match="reason"):
        conformance_results.expectations(line("fail").replace("reason", "because"))
    with pytest.raises(TestbedError, match="'pass' is neither"):
        conformance_results.expectations(line("pass"))


def test_no_test_at_all_is_not_as_expected() -> None:
    assert conformance.conclude(conformance.Asked(), [])[1]


def test_the_table_in_the_repository_names_known_suites_and_no_test_twice_for_a_class() -> None:
    table = conformance.expected()
    assert {each.suite for each in table} <= conformance.SUITES.keys()
    named = [(each.suite, each.test, name) for each in table for name in each.classes]
    assert len(named) == len(set(named))


def test_the_tests_find_the_images_by_the_names_that_they_are_made_with() -> None:
    template = conformance_images.TEMPLATE.replace("{{.Tag}}", CONFORMANCE.version)
    assert template.replace("{{.Name}}", "runtime") == "dev.local/knative-test-runtime:v0.50.0"


def test_every_suite_is_built_and_every_image_is_pinned() -> None:
    assert {suite.binary for suite in conformance.SUITES.values()} == set(CONFORMANCE.tests)
    pinned = set(re.findall(r'_ "(\S+)"', (CONFORMANCE.folder / "tools.go").read_text()))
    needed = {*CONFORMANCE.binaries.values(), *CONFORMANCE.tests.values()} - {"."}
    assert pinned == needed
