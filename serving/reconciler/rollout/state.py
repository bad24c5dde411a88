"""`status.rollout`: where a rollout stands. All that it needs to go on after a restart is in here. Pure values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from clusters.base.objects import Object, parse_timestamp
from serving.reconciler.rollout.judging import counts
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.verdict import Decision, Verdict
from serving.types.model import unknown_to

Phase = Literal["Progressing", "Paused", "Promoted", "RolledBack", "Failed"]
RUNNING: frozenset[Phase] = frozenset({"Progressing", "Paused"})
REFUSING: frozenset[Phase] = frozenset({"RolledBack", "Failed"})
"""Ends after which the candidate gets nothing."""
NO_ANSWERS = Counts()
FIELDS = (
    "phase", "candidate", "stable", "startedAt", "since", "seenAt", "pausedAt", "endedAt", "verdict", "reasons",
    "passed", "stood", "steady", "step", "percent", "counts", "downSince",
)  # fmt: skip
"""Of `status.rollout`."""


@dataclass(frozen=True, slots=True)
class Look:
    """A verdict, and when the judge came to it (RFC 3339)."""

    verdict: Verdict
    at: str

    def to_json(self) -> Object:
        """As it stands in a status."""
        said = self.verdict
        return {
            "decision": said.decision,
            "at": self.at,
            "reasons": list(said.reasons),
            "numbers": dict(said.numbers),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Look:
        """The inverse of `to_json`."""
        verdict = Verdict(cast(Decision, value["decision"]), tuple(value["reasons"]), dict(value["numbers"]))
        return cls(verdict, value["at"])


@dataclass(frozen=True, slots=True)
class Passed:
    """A step that is over: its percent, from when until when, and the last look at it."""

    percent: int
    since: str
    until: str
    look: Look | None = None

    def to_json(self) -> Object:
        """As it stands in a status."""
        times = {"percent": self.percent, "since": self.since, "until": self.until}
        return times | ({"verdict": self.look.to_json()} if self.look is not None else {})

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Passed:
        """The inverse of `to_json`."""
        look = Look.from_json(value["verdict"]) if "verdict" in value else None
        return cls(value["percent"], value["since"], value["until"], look)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """One rollout. Times are RFC 3339 with milliseconds, empty for what has not happened.

    `step` is the index of the step, `percent` what the candidate is to get now: 0 until it is ready, below the step's
    own while its replicas come. `since` is when that was asked for, `seen_at` when a probe saw the step in force.
    `stable_counts` and `candidate_counts` are what both answered since `percent` changed; `baseline` is what the stable
    version answered in the step before and on the way from it: at 100 % that stands among its counts. `stood` are the
    replicas that it had when the step began, by Configuration; `steady` says that the averages of the autoscaler know
    nothing of the traffic before. `down_since` is when the candidate, which had traffic, failed; empty while ready.
    `more` are fields that this version of ours does not know, and keeps.
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
    look: Look | None = None
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
        """Whether it has no end yet."""
        return self.phase in RUNNING

    @property
    def is_on_its_way(self) -> bool:
        """Whether the candidate has traffic, and is to have that of a step which is not in force yet."""
        return self.phase == "Progressing" and self.percent > 0 and not self.seen_at

    @property
    def follows_load(self) -> bool:
        """Whether what both versions hold is what requests call for: before the first step, and in a long wait."""
        return not self.percent or (self.steady and self.is_on_its_way)

    @property
    def refuses(self) -> bool:
        """Whether the candidate was refused."""
        return self.phase in REFUSING

    def to_json(self) -> Object:
        """As it stands in the status; empty parts are left out."""
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
            "verdict": self.look.to_json() if self.look is not None else {},
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
        """The inverse of `to_json`."""
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
            look=Look.from_json(value["verdict"]) if value.get("verdict") else None,
            reasons=tuple(value.get("reasons", ())),
            stable_counts=counts.from_json(answered.get("stable")),
            candidate_counts=counts.from_json(answered.get("candidate")),
            baseline=counts.from_json(answered.get("baseline")),
            passed=tuple(map(Passed.from_json, value.get("passed", ()))),
            stood=dict(value.get("stood", {})),
            steady=bool(value.get("steady", False)),
            down_since=value.get("downSince", ""),
            more=unknown_to(FIELDS, value),
        )

    @property
    def last_at(self) -> str:
        """The newest of the moments that its waits count from: when it was last written that it goes on."""
        found = (self.since, self.seen_at, self.paused_at, self.look.at if self.look is not None else "")
        return max(filter(None, found), key=parse_timestamp, default="")

    def taken_up(self, found_at: datetime, within: float) -> RolloutState:
        """The state as another process goes on with it, which found it then; `within`: the most seconds, by one clock,
        from `last_at` until another leader finds it.

        When no more have passed the clocks agree, as far as can be known, and it is taken as it is: a clock that was
        set forward by less than that shortens a wait by no more. Else they are of clocks that differ, or nobody led for
        long: how long is not known and counts in no wait, so that each is as far as at `last_at`. No step is skipped
        then, and of one no more repeated than since the last look. The look itself stays when it was, and the next one
        is due.
        """
        if not self.runs or not self.last_at:
            return self
        gap = found_at - parse_timestamp(self.last_at)
        if 0.0 <= gap.total_seconds() <= within:
            return self
        return replace(self._with_times(lambda at: moment(parse_timestamp(at) + gap)), look=self.look)

    def not_after(self, now: datetime) -> RolloutState:
        """The state with none of its times in the future: what a clock wrote that was put back since is of now."""
        return self._with_times(lambda at: moment(now) if seconds_between(at, now) < 0.0 else at)

    def _with_times(self, change: Callable[[str], str]) -> RolloutState:
        """The state with the moments that waits count from changed, as far as they have come."""

        def changed(at: str) -> str:
            return change(at) if at else at

        return replace(
            self,
            since=changed(self.since),
            seen_at=changed(self.seen_at),
            paused_at=changed(self.paused_at),
            ended_at=changed(self.ended_at),
            down_since=changed(self.down_since),
            look=replace(self.look, at=changed(self.look.at)) if self.look is not None else None,
        )


def rollout_of(model: Object) -> RolloutState | None:
    """`status.rollout`; None when there was none yet, or it was not written by us."""
    value = (model.get("status") or {}).get("rollout")
    if not isinstance(value, Mapping) or value.get("phase") not in get_args(Phase):
        return None
    try:
        return RolloutState.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def moment(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds: steps are shorter than a status's seconds are fine."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_between(earlier: str, later: datetime) -> float:
    """Seconds from a moment in a status to now."""
    return (later - parse_timestamp(earlier)).total_seconds()


def words(reasons: Sequence[str]) -> str:
    """Reasons as one line."""
    return "; ".join(reasons)
