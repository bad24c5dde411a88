"""What is fuzzed, and how: random input of one kind, and a check that raises when a promise is broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Verbosity, given, settings
from hypothesis.strategies import SearchStrategy

BATCH = 1000  # examples between two looks at the clock


@dataclass(frozen=True, slots=True)
class Target:
    """`opened` gives the check of one input; `everyday` is how many inputs are tried in about a second."""

    name: str
    inputs: SearchStrategy[Any]
    opened: Callable[[], AbstractContextManager[Callable[[Any], None]]]
    everyday: int


def explore(target: Target, check: Callable[[Any], None], examples: int) -> None:
    """Try so many inputs. Raises what the check raises, for the smallest input that Hypothesis finds."""

    @settings(
        max_examples=examples, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.normal,
    )  # fmt: skip
    @given(target.inputs)
    def run(value: Any) -> None:
        check(value)

    run()


def explore_for(target: Target, seconds: float) -> int:
    """Try inputs for so long; how many. Raises as `explore`."""
    tried = 0
    until = time.monotonic() + seconds
    with target.opened() as check:

        def counted(value: Any) -> None:
            nonlocal tried
            tried += 1
            check(value)

        while time.monotonic() < until:
            explore(target, counted, BATCH)
    return tried
