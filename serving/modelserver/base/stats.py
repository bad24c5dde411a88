"""How busy the server is, exactly: readers take the difference of two readings, however far apart they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

SHORTEST = 0.1
"""Milliseconds of a stage that is over but took less: 0 means that it is not over."""


class Download(msgspec.Struct):
    """How far the files are, in bytes; `total` is None while it is not known. Told by the thread that fetches."""

    received: int | None = None
    total: int | None = None

    def __call__(self, received: int, total: int | None) -> None:
        """So many bytes are here."""
        self.total = total
        self.received = received

    def to_json(self) -> dict[str, int | None] | None:
        """Of the page `/stats`; None of files that are read where they are."""
        return None if self.received is None else {"bytes": self.received, "total": self.total}


class Startup(msgspec.Struct):
    """Milliseconds of the stages of the start: process to main program, files to engine, first inferences.

    `fetch`, part of `load`: until the files were here. `claimed`: the process waited in a pool, so that its imports
    took nobody's time. `ready_at` is when the model was served first (`monotonic`, seconds). `format` is that of the
    files, "" until it is found; `digest` likewise.
    """

    imports: float = 0.0
    fetch: float = 0.0
    load: float = 0.0
    warmup: float = 0.0
    claimed: bool = False
    ready_at: float | None = None
    download: Download = msgspec.field(default_factory=Download)
    format: str = ""
    digest: str = ""

    @property
    def fetched(self) -> bool:
        """Whether the files are here."""
        return self.fetch > 0

    def to_json(self, now: float) -> dict[str, Any]:
        """Of the page `/stats`; `readyFor` is null before the model is served."""
        ready_for = None if self.ready_at is None else round((now - self.ready_at) * 1000, 1)
        stages = {"imports": self.imports, "fetch": self.fetch, "load": self.load, "warmup": self.warmup}
        return {
            **{stage: round(value, 1) or (SHORTEST if value > 0 else 0.0) for stage, value in stages.items()},
            "claimed": self.claimed,
            "readyFor": ready_for,
        }


class Stats:
    """Slots in use and requests that wait for one, and the integral of both over time (`monotonic`, seconds).

    `revision` and `slots` are "" and 0 until it is known what is served, `memory` (bytes) is 0 until it is.
    """

    def __init__(
        self, monotonic: Callable[[], float], revision: str = "", slots: int = 0, startup: Startup | None = None
    ) -> None:
        self.revision = revision
        self.slots = slots
        self.memory = 0
        self.startup = startup or Startup()
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

    @property
    def parts(self) -> Sequence[tuple[Mapping[str, str], Stats]]:
        """By the labels of metrics: of each model its own."""
        return (({"revision": self.revision}, self),)

    def served(self, memory: int = 0) -> None:
        """The model is served from now on, and takes so many bytes."""
        self.memory = memory
        self.startup.ready_at = self._monotonic()

    def gone(self) -> None:
        """The model is served no more."""
        self.memory = 0
        self.startup.ready_at = None

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
            "memory": self.memory,
            "startup": self.startup.to_json(self._monotonic()),
            "download": self.startup.download.to_json(),
            "format": self.startup.format or None,
            "digest": self.startup.digest or None,
        }

    def _integrate(self) -> None:
        now = self._monotonic()
        self._busy_seconds += (self.active + self.queued) * (now - self._changed)
        self._changed = now
