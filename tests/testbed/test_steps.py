"""Steps run in the order of their needs, beside each other where they may, and stop at the first failure."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.testbed.errors import TestbedError
from tests.testbed.steps import Step, run


def done(name: str, record: list[str], changed: bool = False) -> Callable[[], bool]:
    def do() -> bool:
        record.append(name)
        return changed

    return do


def test_a_step_comes_after_those_that_it_needs() -> None:
    record: list[str] = []
    table = [
        Step("c", done("c", record), ("a", "b")),
        Step("b", done("b", record), ("a",)),
        Step("a", done("a", record)),
    ]
    assert run(table, record.append) is False
    assert record == ["a", "b", "c"]


def test_only_steps_that_changed_something_are_reported() -> None:
    reports: list[str] = []
    assert run([Step("a", lambda: True), Step("b", lambda: False, ("a",))], reports.append) is True
    assert reports == ["a: done"]


def test_steps_that_do_not_need_each_other_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet() -> bool:
        both.wait()
        return False

    run([Step("a", meet), Step("b", meet)], print)


def test_after_a_failure_no_other_step_begins() -> None:
    record: list[str] = []

    def fail() -> bool:
        raise TestbedError("a failed")

    with pytest.raises(TestbedError, match="a failed"):
        run([Step("a", fail), Step("b", done("b", record), ("a",))], print)
    assert record == []


def test_a_failure_is_told_at_once_though_another_step_is_not_done() -> None:
    end = threading.Event()

    def fail() -> bool:
        raise TestbedError("a failed")

    with pytest.raises(TestbedError, match="a failed"):
        run([Step("slow", lambda: end.wait(60)), Step("a", fail)], print)
    end.set()


def test_a_need_that_no_step_brings_is_an_error() -> None:
    with pytest.raises(TestbedError, match=r"\['a'\] need what no step brings"):
        run([Step("a", lambda: False, ("b",))], print)
