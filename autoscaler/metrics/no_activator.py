"""Stands in for the activator where none is read: it knows of no request, and never calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusters.objects import Key


@dataclass(frozen=True, slots=True)
class NothingKnown:
    """No request was heard of."""

    queued: int = 0
    active: int = 0


class NoActivator:
    """An `ActivatorLoad` without an activator; whoever uses it must not scale to zero what can be reached."""

    def load(self, key: Key) -> NothingKnown:
        """Nothing, of any revision."""
        return NothingKnown()

    def subscribe(self, callback: Callable[[Key], None]) -> None:
        """There is nobody to call."""

    async def refresh(self) -> bool:
        """Nothing is known."""
        return False
