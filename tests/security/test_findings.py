"""What counts as an explanation of a finding."""

from __future__ import annotations

import pytest

from tests.security.bandit import is_explained
from tests.security.finding import Explanation, Finding, idle, unexplained
from tests.security.semgrep import without_example

FOUND = [Finding("t", "R1", "serving/a.py:3", "bad"), Finding("t", "R2", "serving/b.py:4", "worse")]


@pytest.mark.parametrize(
    ("line", "explained"),
    [
        ("x = random.random()  # noqa: S311 - jitter, no secret", True),
        ("x = random.random()  # noqa: S311  no secret", True),
        ("x = random.random()  # noqa: PERF401, S311 - jitter", True),
        ("x = random.random()  # noqa: S311", False),
        ("x = random.random()  # noqa: S310 - another rule", False),
        ("x = random.random()", False),
    ],
)
def test_a_comment_explains_by_number_and_reason(line: str, explained: bool) -> None:
    assert is_explained("B311", ["y = 1", line]) is explained


def test_what_no_explanation_is_about_is_left() -> None:
    assert unexplained(FOUND, [Explanation("R1", "^serving/", "meant")]) == FOUND[1:]
    assert unexplained(FOUND, [Explanation("R1", "^eventing/", "meant")]) == FOUND


def test_an_explanation_of_what_is_found_no_more_is_idle() -> None:
    old = Explanation("R3", "", "was meant")
    assert idle(FOUND, [old, Explanation("R2", "b.py", "meant")]) == [old]


def test_every_rule_of_ours_has_an_example_that_provokes_it_and_one_that_does_not() -> None:
    assert without_example() == []
