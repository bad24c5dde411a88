"""The state of a rollout, as stored in `status.rollout`: everything that it needs to continue after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from clusters.base.objects import Object, parse_timestamp
from serving.reconciler.rollout.judging import counts
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.verdict import UNANSWERED, Decision, Verdict
from serving.types.model import unknown_fields

Phase = Literal["Progressing", "Paused", "Promoted", "RolledBack", "Failed"]
RUNNING: frozenset[Phase] = frozenset({"Progressing", "Paused"})
REFUSING: frozenset[Phase] = frozenset({"RolledBack", "Failed"})
"""Phases after which the candidate gets no traffic."""
STABLE_FAILS = "StableVersionFails"
"""Reason of RolloutHeld while the stable version cannot be compared with."""
UNANSWERED_REQUESTS = "RequestsUnanswered"
"""Reason of RolloutHeld while the candidate leaves requests without an answer."""
NO_ANSWERS = Counts()
FIELDS = (
    "phase", "candidate", "stable", "startedAt", "since", "seenAt", "pausedAt", "endedAt", "verdict", "reasons",
    "passed", "stood", "steady", "step", "percent", "counts", "downSince",
)  # fmt: skip
"""Fields of `status.rollout`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its time (RFC 3339)."""

    verdict: Verdict
    at: str

    def to_json(self) -> Object:
        """Return the judgement as stored in a status."""
        return {
            "decision": self.verdict.decision,
            "at": self.at,
            "reasons": list(self.verdict.reasons),
            "numbers": dict(self.verdict.numbers),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Judgement:
        """Read a judgement that `to_json` wrote."""
        verdict = Verdict(cast(Decision, value["decision"]), tuple(value["reasons"]), dict(value["numbers"]))
        return cls(verdict, value["at"])


@dataclass(frozen=True, slots=True)
class Passed:
    """A finished step: its percent, its begin and end (RFC 3339), and the last judgement of it."""

    percent: int
    since: str
    until: str
    judgement: Judgement | None = None

    def to_json(self) -> Object:
        """Return the step as stored in a status."""
        times = {"percent": self.percent, "since": self.since, "until": self.until}
        return times | ({"verdict": self.judgement.to_json()} if self.judgement is not None else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Passed:
        """Read a step that `to_json` wrote."""
        judgement = Judgement.from_json(value["verdict"]) if "verdict" in value else None
        return cls(value["percent"], value["since"], value["until"], judgement)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state of one rollout. Times are RFC 3339 with milliseconds, empty for what has not happened.

    - `step` is the index of the step. `percent` is the candidate's present share: 0 until it is ready, less than the
      step's percent while its replicas start.
    - `since` is when this share was requested, `seen_at` when the whole step was observed at the gateway.
    - `stable_counts` and `candidate_counts` are the requests of both versions since `percent` changed. `baseline` are
      those of the stable version in the step before and on the way from it; at 100 % they join `stable_counts`.
    - `stood` is the number of the stable version's replicas when the step began, by Configuration. `steady`: the
      autoscaler's averages no longer contain the traffic before the last change.
    - `down_since` is when a candidate with traffic failed; empty while it is ready.
    - `more` are fields of a newer release, which are kept.
    """

    phase: Phase
    candidate: str
    stable: str
    started_at: str
    since: str
    step: int = 0
    percent: int = 0
    seen_at: str = ""
    paused_at: str = ""
    ended_at: str = ""
    judgement: Judgement | None = None
    reasons: tuple[str, ...] = ()
    stable_counts: Counts = NO_ANSWERS
    candidate_counts: Counts = NO_ANSWERS
    baseline: Counts = NO_ANSWERS
    passed: tuple[Passed, ...] = ()
    stood: Mapping[str, int] = field(default_factory=dict)
    steady: bool = False
    down_since: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Return whether the rollout has not ended."""
        return self.phase in RUNNING

    @property
    def is_on_its_way(self) -> bool:
        """Return whether the candidate has traffic, but the step is not yet observed at the gateway."""
        return self.phase == "Progressing" and self.percent > 0 and not self.seen_at

    @property
    def follows_load(self) -> bool:
        """Return whether requests determine the replicas of both versions: before the first step, and in long waits."""
        return not self.percent or (self.steady and self.is_on_its_way)

    @property
    def refuses(self) -> bool:
        """Return whether the candidate was rejected."""
        return self.phase in REFUSING

    def to_json(self) -> Object:
        """Return `status.rollout`, without empty fields."""
        parts = {
            "phase": self.phase,
            "candidate": self.candidate,
            "stable": self.stable,
            "startedAt": self.started_at,
            "since": self.since,
            "seenAt": self.seen_at,
            "pausedAt": self.paused_at,
            "endedAt": self.ended_at,
            "downSince": self.down_since,
            "verdict": self.judgement.to_json() if self.judgement is not None else {},
            "reasons": list(self.reasons),
            "passed": [one.to_json() for one in self.passed],
            "stood": dict(self.stood),
            "steady": self.steady,
        }
        answered = {
            "stable": counts.to_json(self.stable_counts),
            "candidate": counts.to_json(self.candidate_counts),
        }
        if self.baseline != NO_ANSWERS:
            answered["baseline"] = counts.to_json(self.baseline)
        kept = {name: value for name, value in parts.items() if value}
        return {**kept, "step": self.step, "percent": self.percent, "counts": answered, **self.more}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RolloutState:
        """Read a state that `to_json` wrote."""
        answered = value.get("counts") or {}
        return cls(
            phase=cast(Phase, value["phase"]),
            candidate=value["candidate"],
            stable=value["stable"],
            started_at=value["startedAt"],
            since=value["since"],
            step=int(value.get("step", 0)),
            percent=int(value.get("percent", 0)),
            seen_at=value.get("seenAt", ""),
            paused_at=value.get("pausedAt", ""),
            ended_at=value.get("endedAt", ""),
            judgement=Judgement.from_json(value["verdict"]) if value.get("verdict") else None,
            reasons=tuple(value.get("reasons", ())),
            stable_counts=counts.from_json(answered.get("stable")),
            candidate_counts=counts.from_json(answered.get("candidate")),
            baseline=counts.from_json(answered.get("baseline")),
            passed=tuple(map(Passed.from_json, value.get("passed", ()))),
            stood=dict(value.get("stood", {})),
            steady=bool(value.get("steady", False)),
            down_since=value.get("downSince", ""),
            more=unknown_fields(FIELDS, value),
        )

    @property
    def last_at(self) -> str:
        """Return the latest time from which a wait counts: the last one at which the state was written as running."""
        found = (self.since, self.seen_at, self.paused_at, self.judgement.at if self.judgement is not None else "")
        return max(filter(None, found), key=parse_timestamp, default="")

    def taken_up(self, found_at: datetime, within: float) -> RolloutState:
        """Return the state for a process that found it at `found_at`, and continues it.

        `within`: the most seconds, by one clock, from `last_at` until another leader finds the state. When no more have
        passed, the clocks agree as far as can be known, and the state is unchanged. A clock that was set forward by
        less than `within` shortens a wait by no more than that. Otherwise the clocks differ, or there was no leader for
        an unknown time. That time counts in no wait: all times move, so that each wait is as far as at `last_at`. No
        step is skipped then, and a step repeats no more than the time since the last judgement. The judgement keeps its
        time, so the next one is due.
        """
        if not self.runs or not self.last_at:
            return self
        gap = found_at - parse_timestamp(self.last_at)
        if 0.0 <= gap.total_seconds() <= within:
            return self
        return replace(self._with_times(lambda at: moment(parse_timestamp(at) + gap)), judgement=self.judgement)

    def not_after(self, now: datetime) -> RolloutState:
        """Return the state with times in the future, written before a clock was set back, replaced by `now`."""
        return self._with_times(lambda at: moment(now) if seconds_between(at, now) < 0.0 else at)

    def _with_times(self, change: Callable[[str], str]) -> RolloutState:
        """Return the state with `change` applied to each non-empty time from which waits count."""

        def changed(at: str) -> str:
            return change(at) if at else at

        return replace(
            self,
            since=changed(self.since),
            seen_at=changed(self.seen_at),
            paused_at=changed(self.paused_at),
            ended_at=changed(self.ended_at),
            down_since=changed(self.down_since),
            judgement=replace(self.judgement, at=changed(self.judgement.at)) if self.judgement is not None else None,
        )


def rollout_of(model: Object) -> RolloutState | None:
    """Return `status.rollout`; None when it is absent or not in the format of `RolloutState.to_json`."""
    value = (model.get("status") or {}).get("rollout")
    if not isinstance(value, Mapping) or value.get("phase") not in get_args(Phase):
        return None
    try:
        return RolloutState.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def moment(at: datetime) -> str:
    """Return the time as RFC 3339 in UTC with milliseconds: whole seconds are too coarse for short steps."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_between(earlier: str, later: datetime) -> float:
    """Return the seconds from a time of a status to `later`."""
    return (later - parse_timestamp(earlier)).total_seconds()


def join_reasons(reasons: Sequence[str]) -> str:
    """Return the reasons as one line."""
    return "; ".join(reasons)


def held_by(rollout: RolloutState) -> tuple[str, str] | None:
    """Return reason and message of the condition RolloutHeld; None when the judge does not hold the rollout.

    Too little traffic is not a reason to report: rollouts usually wait for it.
    """
    if not rollout.runs or rollout.judgement is None:
        return None
    verdict = rollout.judgement.verdict
    if verdict.decision == "hold":
        return STABLE_FAILS, verdict.reasons[0]
    if verdict.decision == "wait" and UNANSWERED in verdict.numbers:
        return UNANSWERED_REQUESTS, verdict.reasons[0]
    return None
