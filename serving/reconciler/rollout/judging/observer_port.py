"""What the reconciler of a rollout sees of the world, as interfaces: who implements them is its caller's matter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from serving.reconciler.rollout.judging.counts import Counts
from serving.types.rollout import MetricRule


class Observer(Protocol):
    """Sees what revisions answer."""

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """What each revision answered since the reading before for this rollout, which any text names; the first one of
        a replica that was there already only notes where it stands.

        What cannot be read is left out; raises nothing for it.
        """
        ...

    def forget(self, rollout: str) -> None:
        """The next reading for this rollout is the first one: what was answered until then is not its."""
        ...


class Metrics(Protocol):
    """Asks for further metrics."""

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """The value of each metric by its name; None, or nothing, for one that has no answer now. Raises nothing."""
        ...


class Unseen:
    """Where nobody looks: no revision has answered anything, no metric has a value."""

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Mapping[str, Counts]:
        """Nothing."""
        return {}

    def forget(self, rollout: str) -> None:
        """Nothing is known."""

    async def values(self, rules: Sequence[MetricRule]) -> Mapping[str, float | None]:
        """Nothing."""
        return {}
