"""Reasons for a pool's size, for missing members, and for a model's keep-alive, as values and text (`status.reasons`,
`knodel explain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PoolRule(StrEnum):
    """The rules, as named in `WarmPool.status.reasons`."""

    FIXED = "Fixed"
    PLAN = "Plan"
    ARRIVALS = "Arrivals"
    QUIET = "Quiet"
    NEW = "NotEnoughData"
    BOUNDS = "Bounds"
    BUDGET = "Budget"
    GPU = "GPU"
    NO_SEED = "NoSeed"
    NO_SERVER = "NoPoolServer"
    FAILING = "MembersFail"
    REFUSED = "Refused"
    WAITING = "NotStarting"
    REPLACING = "Replacing"


_TEXTS = {
    PoolRule.FIXED: "the size is set to {size}",
    PoolRule.PLAN: "{starts:.0f} starts an hour are expected, of which {missed:.1%} find none of {size} members free; "
    "one more would save less than {price:.2g} s of waiting per pod-second",
    PoolRule.ARRIVALS: "at most {peak} starts came within one refill of {refill:.1f} s in the last hour, {starts} in "
    "total, {cold} without a member: {size}",
    PoolRule.QUIET: "no starts in the last hour: {size}",
    PoolRule.NEW: "starts were recorded for less than an hour, so the size is not reduced: {size}",
    PoolRule.BOUNDS: "the spec allows {least} to {most} members: {size}",
    PoolRule.BUDGET: "a member requests {cpu:g} cores and {memory:.0f} MiB, the budget holds {size}",
    PoolRule.GPU: "{why}: {size}",
    PoolRule.NO_SEED: "no Deployment exists for the template yet, so no member is created; see status.seed",
    PoolRule.NO_SERVER: "no container of {deployment} has the argument --pool, so no member is created",
    PoolRule.FAILING: "{pod} {what}",
    PoolRule.REFUSED: "the cluster rejects new members: {what}",
    PoolRule.WAITING: "{pod} does not start: {what}",
    PoolRule.REPLACING: "{aged} members are older than {max_age:g} s and are being replaced one by one",
}


@dataclass(frozen=True, slots=True)
class PoolReason:
    """A rule and its values; as text in the form of the status."""

    rule: PoolRule
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The reason as one line."""
        return _TEXTS[self.rule].format(**self.values)

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.message}"


class KeepRule(StrEnum):
    """The rules of a model's keep-alive."""

    USUAL = "NotEnoughData"
    FIXED = "Fixed"
    WORTH = "WorthItsPrice"
    LIKE_OTHERS = "LikeOthers"


_KEEP_TEXTS = {
    KeepRule.USUAL: "{seen} idle times of all models were recorded, a plan needs {enough}: kept {hold:.0f} s",
    KeepRule.FIXED: "its policy keeps it {hold:.0f} s",
    KeepRule.WORTH: "{chance:.0%} of its {seen} idle times end within {hold:.0f} s; keeping it longer saves less than "
    "{price:.2g} s of waiting per pod-second",
    KeepRule.LIKE_OTHERS: "no idle time of its own was recorded, {chance:.0%} of others' end within {hold:.0f} s; "
    "keeping it longer saves less than {price:.2g} s of waiting per pod-second",
}


@dataclass(frozen=True, slots=True)
class KeepReason:
    """A rule and its values."""

    rule: KeepRule
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The reason as one line."""
        return _KEEP_TEXTS[self.rule].format(**self.values)

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.message}"
