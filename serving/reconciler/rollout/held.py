"""Why a rollout that runs does not go on, as the reason and message of a condition. Pure."""

from __future__ import annotations

from serving.reconciler.rollout.judging.verdict import UNANSWERED
from serving.reconciler.rollout.state import RolloutState

STABLE_FAILS = "StableVersionFails"
UNANSWERED_REQUESTS = "RequestsUnanswered"


def held_by(rollout: RolloutState) -> tuple[str, str] | None:
    """Return reason and message of what the judge's last look holds the rollout for; None when it holds it for nothing.

    Too little traffic is no such reason: it is what a rollout usually waits for.
    """
    if not rollout.runs or rollout.look is None:
        return None
    verdict = rollout.look.verdict
    if verdict.decision == "hold":
        return STABLE_FAILS, verdict.reasons[0]
    if verdict.decision == "wait" and UNANSWERED in verdict.numbers:
        return UNANSWERED_REQUESTS, verdict.reasons[0]
    return None
