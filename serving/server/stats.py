"""How busy the server is, exactly: readers take the difference of two readings, however far apart they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Startup:
    """Milliseconds of the stages of the start: process to main program, files to engine, first inferences."""

    imports: float = 0.0
    load: float = 0.0
    warmup: float = 0.0


class Stats:
    """Slots in use and requests that wait for one, and the integral of both over time (`monotonic`, seconds)."""

    def __init__(self, revision: str, slots: int, monotonic: Callable[[], float]) -> None:
        self.revision = revision
        self.slots = slots
        self.startup = Startup()
        self.active = 0
        self.queued = 0
        self.requests = 0
        self._monotonic = monotonic
        self._changed = monotonic()
        self._busy_seconds = 0.0

    @property
    def busy_seconds(self) -> float:
        """Slot-seconds until now, queued requests counted as one slot each."""
        self._integrate()
        return self._busy_seconds

    def change(self, active: int = 0, queued: int = 0) -> None:
        """So many more (or fewer) are active and queued from now on."""
        self._integrate()
        self.active += active
        self.queued += queued

    def to_json(self) -> dict[str, Any]:
        """The page `/stats`."""
        return {
            "revision": self.revision,
            "slots": self.slots,
            "active": self.active,
            "queued": self.queued,
            "requests": self.requests,
            "busySeconds": self.busy_seconds,
            "startup": {stage: round(value, 1) for stage, value in asdict(self.startup).items()},
        }

    def _integrate(self) -> None:
        now = self._monotonic()
        self._busy_seconds += (self.active + self.queued) * (now - self._changed)
        self._changed = now
