"""A table of steps, each run when those that it needs are done; what can go at the same time does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.testbed.errors import TestbedError
from tests.testbed.progress import Report


@dataclass(frozen=True, slots=True)
class Step:
    """`do` brings about what `name` says and tells whether it changed anything; it may be done again at any time."""

    name: str
    do: Callable[[], bool]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Outcome:
    step: Step
    changed: bool = False
    failure: BaseException | None = None


def run(steps: Sequence[Step], report: Report) -> bool:
    """Do all steps; whether one of them changed anything. Reports those that did.

    The first failure is raised at once: no other step begins, and those under way are left to themselves, as the end of
    the process would leave them. Raises TestbedError when a step needs what no step brings.
    """
    waiting, done, changed = list(steps), set[str](), False
    outcomes: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
    running = 0
    while waiting or running:
        ready = [step for step in waiting if done.issuperset(step.needs)]
        for step in ready:
            waiting.remove(step)
            threading.Thread(target=_do, args=(step, outcomes), name=step.name, daemon=True).start()
        running += len(ready)
        if not running:
            raise TestbedError(f"steps {[step.name for step in waiting]} need what no step brings")
        outcome = outcomes.get()
        running -= 1
        if outcome.failure is not None:
            raise outcome.failure
        if outcome.changed:
            changed = True
            report(f"{outcome.step.name}: done")
        done.add(outcome.step.name)
    return changed


def _do(step: Step, outcomes: queue.SimpleQueue[_Outcome]) -> None:
    try:
        outcomes.put(_Outcome(step, changed=step.do()))
    except BaseException as exc:  # raised again where the steps are run
        outcomes.put(_Outcome(step, failure=exc))
