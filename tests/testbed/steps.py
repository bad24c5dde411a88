"""A table of steps, each run when those that it needs are done; what can go at the same time does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from tests.testbed.errors import TestbedError


@dataclass(frozen=True, slots=True)
class Step:
    """`do` brings about what `name` says and tells whether it changed anything; it may be done again at any time."""

    name: str
    do: Callable[[], bool]
    needs: tuple[str, ...] = ()


def run(steps: Sequence[Step], report: Callable[[str], object]) -> bool:
    """Do all steps; whether one of them changed anything. Reports those that did.

    The first failure is raised once the steps under way have ended; no other is begun. Raises TestbedError when a step
    needs one that is not in the table, or they need each other.
    """
    waiting, done, changed = list(steps), set[str](), False
    running: dict[Future[bool], Step] = {}
    with ThreadPoolExecutor(max_workers=max(1, len(steps))) as pool:
        while waiting or running:
            for step in [step for step in waiting if done.issuperset(step.needs)]:
                waiting.remove(step)
                running[pool.submit(step.do)] = step
            if not running:
                raise TestbedError(f"steps {[step.name for step in waiting]} need what no step brings")
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                step = running.pop(future)
                if future.result():
                    changed = True
                    report(f"{step.name}: done")
                done.add(step.name)
    return changed
