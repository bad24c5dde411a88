"""What one pass sees of a rollout beside the versions. A pure value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from serving.reconciler.rollout.history import Shares
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.state import NO_ANSWERS, Look
from serving.types.rollout import ALL, Command


@dataclass(frozen=True, slots=True)
class Sight:
    """What a pass sees beside the versions.

    `shares` are percents as seen at the gateway; `look` is the judge's in this pass, with what both answered since the
    percent changed; `reach` is the percent that the candidate's ready replicas can take; `standing` are the replicas
    that the rollout may count on, by Configuration.
    """

    shares: Shares = field(default_factory=dict)
    command: Command | None = None
    by_hand: bool = False
    look: Look | None = None
    stable_counts: Counts = NO_ANSWERS
    candidate_counts: Counts = NO_ANSWERS
    reach: int = ALL
    standing: Mapping[str, int] = field(default_factory=dict)
