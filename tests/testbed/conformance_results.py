"""What Knative's tests said, and whether that is what is expected. Pure: from lines of `go tool test2json` to a table.

A test that is in no line of `conformance.toml` is expected to pass; one that is there has to end as it says there, so
that a reason that no longer holds is found out too.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.testbed.errors import TestbedError

PASS: Final = "pass"
FAIL: Final = "fail"
SKIP: Final = "skip"
UNFINISHED: Final = "unfinished"
"""The suite ended, by its time limit or a crash, before the test did."""
OUTCOMES: Final = (PASS, FAIL, SKIP)
ANY_CLASS: Final = "*"
_LAST_LINES: Final = 6  # of a failed test's own output that the table shows
_RUN, _OUTPUT = "run", "output"
_NOISE: Final = ("=== ", "--- ")  # lines of `go test` about tests, not of them


@dataclass(slots=True)
class Result:
    """One top-level test or subtest: how it ended (of OUTCOMES, or UNFINISHED), after how long (s), and its words."""

    suite: str
    test: str
    outcome: str = UNFINISHED
    seconds: float = 0.0
    output: list[str] = field(default_factory=list)

    @property
    def is_top(self) -> bool:
        """Whether it is no subtest."""
        return "/" not in self.test


@dataclass(frozen=True, slots=True)
class Expectation:
    """One line of the table: a test that does not simply pass, for these classes (ANY_CLASS: all), and why."""

    suite: str
    test: str
    outcome: str
    classes: tuple[str, ...]
    reason: str

    def concerns(self, result: Result, autoscaler_class: str) -> bool:
        """Whether it is about this test of this class."""
        fits = ANY_CLASS in self.classes or autoscaler_class in self.classes
        return fits and (self.suite, self.test) == (result.suite, result.test)


def read(suite: str, lines: Iterable[str]) -> list[Result]:
    """The results in the order in which the tests began; lines that are no JSON object are left out."""
    found: dict[str, Result] = {}
    for event in map(_event, lines):
        name = event.get("Test", "")
        if not name:
            continue
        result = found.setdefault(name, Result(suite, name))
        action = event.get("Action")
        if action in OUTCOMES:
            result.outcome, result.seconds = action, float(event.get("Elapsed", 0.0))
        elif action == _OUTPUT and not event["Output"].lstrip().startswith(_NOISE):
            result.output.append(event["Output"].rstrip())
    return list(found.values())


def expectations(text: str) -> list[Expectation]:
    """The table out of the text of `conformance.toml`. Raises TestbedError for a line that lacks something."""
    try:
        return [_expectation(line) for line in tomllib.loads(text).get("test", [])]
    except (tomllib.TOMLDecodeError, KeyError) as exc:
        raise TestbedError(f"the table of expected results is broken: {exc}; see its head") from exc


def deviations(results: Sequence[Result], table: Sequence[Expectation], autoscaler_class: str) -> list[str]:
    """One line for each top-level test that did not end as expected."""
    said = []
    for result in filter(lambda one: one.is_top, results):
        expected = _expected(result, table, autoscaler_class)
        wanted = expected.outcome if expected else PASS
        if result.outcome != wanted:
            said.append(f"{result.suite} {result.test}: {result.outcome}, expected {wanted}")
    return said


def table(results: Sequence[Result], expected: Sequence[Expectation], autoscaler_class: str) -> str:
    """A line by test: suite, test, result, seconds, why; failed subtests below their test."""
    lines = [f"{'suite':<8} {'test':<58} {'result':<10} {'seconds':>7}  why"]
    for result in results:
        if result.is_top or result.outcome in (FAIL, UNFINISHED):
            why = _why(result, _expected(result, expected, autoscaler_class))
            shown = result.test if result.is_top else f"  {result.test}"
            row = f"{result.suite:<8} {shown:<58} {result.outcome:<10} {result.seconds:>7.1f}  {why}"
            lines.append(row.rstrip())
    return "\n".join(lines)


def counts(results: Sequence[Result]) -> Mapping[str, int]:
    """How many top-level tests ended how."""
    tops = [result.outcome for result in results if result.is_top]
    return {outcome: tops.count(outcome) for outcome in (*OUTCOMES, UNFINISHED) if outcome in tops}


def _expected(result: Result, table: Sequence[Expectation], autoscaler_class: str) -> Expectation | None:
    return next((line for line in table if line.concerns(result, autoscaler_class)), None)


def _why(result: Result, expected: Expectation | None) -> str:
    if expected is not None and expected.outcome == result.outcome:
        return expected.reason
    return "" if result.outcome == PASS else " | ".join(line.strip() for line in result.output[-_LAST_LINES:])


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _expectation(line: Mapping[str, Any]) -> Expectation:
    outcome = line["outcome"]
    if outcome not in (FAIL, SKIP):
        raise TestbedError(f"{line['test']}: outcome {outcome!r} is neither {FAIL!r} nor {SKIP!r}")
    classes = tuple(line.get("classes", (ANY_CLASS,)))
    return Expectation(line["suite"], line["test"], outcome, classes, line["reason"])
