"""How many passes wait for what judges look at: Pods and metrics answer when they like, workers serve all Models."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from clusters.base.objects import Key
from serving.reconciler.rollout.split import Situation, is_by_hand
from serving.reconciler.rollouts import NOT_LOOKED, Looked, Rollouts
from serving.types.model import Model

MOST: Final = 2
"""Looks at a time: half of the workers that a controller has."""


class Looks:
    """The looks of `rollouts`, few at a time: a pass that finds no place goes on without, and comes back."""

    def __init__(self, rollouts: Rollouts, most: int = MOST) -> None:
        self._rollouts = rollouts
        self._free = most

    async def look(self, model: Model, situation: Situation, now: datetime) -> Looked:
        """What the judge saw; nothing when there was no place."""
        state = situation.rollout
        judged = state is not None and state.runs and model.spec.rollout is not None and not is_by_hand(model.spec)
        if self._free <= 0 and judged:
            return NOT_LOOKED
        self._free -= 1
        try:
            return await self._rollouts.look(model, situation, now)
        finally:
            self._free += 1

    def forget(self, key: Key) -> None:
        """The Model is gone."""
        self._rollouts.forget(key)
