"""Whether a version is on trial: what its replicas hold is the price of being careful, and billed as canary. Pure."""

from __future__ import annotations

from serving.reconciler.rollout.split import Situation, is_by_hand
from serving.reconciler.rollout.versions import version_with
from serving.types.model import ModelSpec


def is_on_trial(spec: ModelSpec, situation: Situation, revision: str) -> bool:
    """Whether the revision is of a version newer than the one that last had all the traffic, which a rollout, a canary
    or a split by hand tries beside it. A plain deploy tries nothing: there the new version takes over when it is ready.
    """
    if spec.rollout is None and not is_by_hand(spec):
        return False
    stable = version_with(situation.versions, situation.stable) if situation.stable else None
    version = version_with(situation.versions, revision)
    if stable is None or version is None:
        return False
    return situation.versions.index(version) > situation.versions.index(stable)
