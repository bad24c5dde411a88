"""Why a pool has its size, what keeps it from being full, and why a model is kept warm for so long: values, rendered
here for people (`status.reasons`, `knodel explain`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PoolRule(StrEnum):
    """In the words of `WarmPool.status.reasons`."""

    FIXED = "Fixed"
    PLAN = "Plan"
    ARRIVALS = "Arrivals"
    QUIET = "Quiet"
    NEW = "NotEnoughData"
    BOUNDS = "Bounds"
    BUDGET = "Budget"
    NO_SEED = "NoSeed"
    NO_SERVER = "NoPoolServer"
    FAILING = "MembersFail"
    REFUSED = "Refused"
    WAITING = "NotStarting"
    REPLACING = "Replacing"


_TEXTS = {
    PoolRule.FIXED: "the size is set to {size}",
    PoolRule.PLAN: "{starts:.0f} starts an hour are expected, of which {missed:.1%} find none of {size} members free; "
    "one more would save less than {price:.2g} s of waiting for each second of its own",
    PoolRule.ARRIVALS: "up to {peak} starts came within the {refill:.1f} s of a refill in the last hour, {starts} in "
    "all, {cold} without a member: {size}",
    PoolRule.QUIET: "no start came in the last hour: {size}",
    PoolRule.NEW: "starts are known for less than an hour, so the size does not fall: {size}",
    PoolRule.BOUNDS: "from {least} to {most} members are allowed: {size}",
    PoolRule.BUDGET: "a member asks for {cpu:g} cores and {memory:.0f} MiB, the budget holds {size}",
    PoolRule.NO_SEED: "no Deployment was made from the template yet: nothing is created; see status.seed",
    PoolRule.NO_SERVER: "no container of {deployment} has the argument --pool: nothing is created",
    PoolRule.FAILING: "{pod} {what}",
    PoolRule.REFUSED: "no member may be created: {what}",
    PoolRule.WAITING: "{pod} does not start: {what}",
    PoolRule.REPLACING: "{aged} of the members are older than {max_age:g} s and replaced one by one",
}


@dataclass(frozen=True, slots=True)
class PoolReason:
    """A rule and the numbers and names that it looked at; as text the way it stands in the status."""

    rule: PoolRule
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """One line for people."""
        return _TEXTS[self.rule].format(**self.values)

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.message}"


class KeepRule(StrEnum):
    """Why a model is kept warm for as long as it is."""

    USUAL = "NotEnoughData"
    FIXED = "Fixed"
    WORTH = "WorthItsPrice"
    LIKE_OTHERS = "LikeOthers"


_KEEP_TEXTS = {
    KeepRule.USUAL: "{seen} idle times were seen of all models, too few of the {enough} to go by: kept {hold:.0f} s",
    KeepRule.FIXED: "it is to be kept {hold:.0f} s",
    KeepRule.WORTH: "{chance:.0%} of its {seen} idle times end within {hold:.0f} s; to keep it longer saves less than "
    "{price:.2g} s of waiting for a pod-second",
    KeepRule.LIKE_OTHERS: "no idle time of its own was seen, {chance:.0%} of others' end within {hold:.0f} s; to keep "
    "it longer saves less than {price:.2g} s of waiting for a pod-second",
}


@dataclass(frozen=True, slots=True)
class KeepReason:
    """A rule and the numbers that it looked at."""

    rule: KeepRule
    values: Mapping[str, float | int | str] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """One line for people."""
        return _KEEP_TEXTS[self.rule].format(**self.values)

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.message}"
