"""Play a rollout step by step: versions, a gateway with the requested split, and a judge with given verdicts.

Every pass reads the state from its JSON, as after a restart of the controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.verdict import Decision, Verdict
from serving.reconciler.rollout.schedule import judgement_is_due, step_is_over
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import Judgement, RolloutState, moment
from serving.reconciler.rollout.steps import RolloutInputs, advance_rollout
from serving.types.rollout import Command, Rollout, parse_command
from tests.serving.reconciler.rollout.revisions import versions

OLD, NEW, NEWER = (f"magika-{number:05d}" for number in (1, 2, 3))
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Play:
    """The inputs of one Model's rollout. Change the fields between passes; `verdict` is the judge's next decision."""

    rule: Rollout | None = field(default_factory=Rollout)
    ready: list[bool | None] = field(default_factory=lambda: [True, True])
    unheld: set[str] = field(default_factory=set)
    stable: str | None = OLD
    state: RolloutState | None = None
    shares: dict[str, int] = field(default_factory=lambda: {OLD: 100})
    command: Command | None = None
    by_hand: bool = False
    early: Decision = "wait"
    verdict: Decision = "pass"
    reach: int = 100
    standing: dict[str, int] = field(default_factory=dict)
    now: datetime = START
    numbers: dict[str, float] = field(default_factory=lambda: {"needed": 100.0})
    asked: list[tuple[float, bool]] = field(default_factory=list)

    def situation(self) -> Situation:
        """Return the situation as `make_plan` does."""
        found = tuple(replace(one, held=one.revision not in self.unheld) for one in versions(*self.ready))
        return Situation(found, f"g{len(found)}", self.stable, rollout=self.state)

    def step(self, seconds: float = 0.0, *, seen: bool = True) -> RolloutState | None:
        """Run a pass `seconds` later. Afterwards the gateway has the split, if `seen`."""
        self.now += timedelta(seconds=seconds)
        if self.state is not None:
            self.state = RolloutState.from_json(self.state.to_json())
        sight = RolloutInputs(
            self.shares, self.command, self.by_hand, self._look(), Counts(10), Counts(5), self.reach, self.standing
        )
        self.state = advance_rollout(self.rule, self.situation(), sight, self.state, self.now)
        if seen and self.state is not None:
            self.shares = {self.state.candidate: self.state.percent, self.state.stable: 100 - self.state.percent}
        return self.state

    def passes(self, seconds: float = 0.0, *, seen: bool = True) -> RolloutState:
        """Run a pass, and return the state, which must exist."""
        state = self.step(seconds, seen=seen)
        assert state is not None
        return state

    def _look(self) -> Judgement | None:
        if self.rule is None or self.by_hand or self.state is None:
            return None
        if not judgement_is_due(self.rule, self.state, self.now):
            return None
        if not self.state.percent:
            return Judgement(Verdict("wait", ("measuring the stable version",)), moment(self.now))
        over = step_is_over(self.rule, self.state, self.now)
        self.asked.append(((self.now - START).total_seconds(), over))
        decision = self.verdict if over or (self.early == "fail" and self.verdict == "fail") else self.early
        return Judgement(Verdict(decision, (f"the judge says {decision}",), self.numbers), moment(self.now))

    def until(self, phase: str, *, tick: float = 1.0, most: int = 10_000) -> RolloutState:
        """Run passes every `tick` seconds until the rollout is in this phase."""
        for _ in range(most):
            state = self.step(tick)
            if state is not None and state.phase == phase:
                return state
        raise AssertionError(f"never {phase}: {self.state}")

    def at_step(self, percent: int) -> RolloutState:
        """Run passes until this percent is in force."""
        for _ in range(10_000):
            state = self.step(1.0)
            if state is not None and state.percent == percent and state.seen_at:
                return state
        raise AssertionError(f"never at {percent} %: {self.state}")

    def says(self, text: str) -> None:
        """Set a user's command; an empty one removes it."""
        self.command = parse_command(text) if text else None

    def seconds(self) -> float:
        """Since the play began."""
        return (self.now - START).total_seconds()


def rule(**fields: Any) -> Rollout:
    """Return a default rollout with these fields changed."""
    return replace(Rollout(), **fields)
