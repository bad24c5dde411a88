"""Interfaces by which the judge of a rollout reads request counts and metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from serving.reconciler.rollout.judging.counts import Counts
from serving.types.rollout import MetricRule


class Observer(Protocol):
    """Reads the request counts of revisions."""

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """Return the counts of each revision since the last reading for `rollout`, any text that identifies it.

        The first reading of a replica that existed before only records its totals. Revisions that cannot be read are
        left out. Raises nothing for them.
        """
        ...

    def forget(self, rollout: str) -> None:
        """Drop the last readings, so that the next reading for this rollout is the first one."""
        ...


class Metrics(Protocol):
    """Reads the metrics of a judge."""

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """Return the value of each metric by its name; None or no entry for one without a value. Raises nothing."""
        ...


class NoObserver:
    """An observer without counts and metrics: rollouts hold at their first step."""

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """Return no counts."""
        return {}

    def forget(self, rollout: str) -> None:
        """Do nothing: there are no readings."""

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """Return no values."""
        return {}
