"""A rollout of a model, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from knodel.results.displayed import Displayed


@dataclass(frozen=True, repr=False)
class RolloutStep(Displayed):
    """The state of a rollout at one moment. Times are RFC 3339, empty for what has not happened.

    `phase` is Progressing, Paused, Promoted, RolledBack or Failed. `number` counts steps from 1; `count` is the number
    of steps, 0 if the model has no list of them. `percent` is the share of the candidate. `decision` is the last one of
    the judge (wait, hold, pass, fail; empty: none yet), with its `reasons` and the `numbers` behind it. `status` is
    `status.rollout` of the Model.
    """

    model: str
    phase: str
    candidate: str
    stable: str
    number: int
    count: int
    percent: int
    started_at: str
    since: str
    seen_at: str
    ended_at: str
    decision: str
    reasons: tuple[str, ...]
    numbers: Mapping[str, float] = field(hash=False)
    status: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the rollout has ended."""
        return self.phase not in ("Progressing", "Paused")

    @property
    def promoted(self) -> bool:
        """Whether the rollout has ended with all traffic on the candidate."""
        return self.phase == "Promoted"
