"""Exact load statistics of a server: readers subtract two readings, at any distance in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from clusters.devices.nvml import GpuUse
    from serving.engines.upstream.usage import TokenCounter

MIN_SHOWN = 0.1
"""Milliseconds shown for a finished stage that took less; 0 means that the stage has not finished."""


class DownloadProgress(msgspec.Struct):
    """Progress of a download in bytes; `total` is None while unknown. The downloading thread calls the object."""

    received: int | None = None
    total: int | None = None

    def __call__(self, received: int, total: int | None) -> None:
        """Record the progress."""
        self.total = total
        self.received = received

    def to_json(self) -> dict[str, int | None] | None:
        """Return the entry for the page `/stats`; None for files that are read in place."""
        return None if self.received is None else {"bytes": self.received, "total": self.total}


class StartupTimes(msgspec.Struct):
    """Milliseconds of the stages of a start: imports of the process, loading, first inferences.

    `fetch` is the part of `load` until the files are local. `claimed` is true for a member of a pool, whose imports
    delayed no request. `ready_at` is when the model was first served (`monotonic`, seconds). `format` and `digest`
    describe the files, "" until known.
    """

    imports: float = 0.0
    fetch: float = 0.0
    load: float = 0.0
    warmup: float = 0.0
    claimed: bool = False
    ready_at: float | None = None
    download: DownloadProgress = msgspec.field(default_factory=DownloadProgress)
    format: str = ""
    digest: str = ""

    @property
    def fetched(self) -> bool:
        """Return whether the files are local."""
        return self.fetch > 0

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the entry for the page `/stats`; `readyFor` (milliseconds) is null before the model is served."""
        ready_for = None if self.ready_at is None else round((now - self.ready_at) * 1000, 1)
        stages = {"imports": self.imports, "fetch": self.fetch, "load": self.load, "warmup": self.warmup}
        return {
            **{stage: round(value, 1) or (MIN_SHOWN if value > 0 else 0.0) for stage, value in stages.items()},
            "claimed": self.claimed,
            "readyFor": ready_for,
        }


class AdapterReport(msgspec.Struct, frozen=True):
    """What became of the platform's list of adapters: its id, and by name the faults of those that cannot be loaded."""

    list: str
    faults: Mapping[str, str] = {}


class Stats:
    """Slots in use, queued requests, and the integral of both over time (`monotonic`, seconds).

    Until the model is known, `revision` is "" and `slots` is 0. `memory` is in bytes, 0 until the model is served.
    """

    def __init__(
        self, monotonic: Callable[[], float], revision: str = "", slots: int = 0, startup: StartupTimes | None = None
    ) -> None:
        self.revision = revision
        self.slots = slots
        self.memory = 0
        self.startup = startup or StartupTimes()
        self.active = 0
        self.queued = 0
        self.kv_share: float | None = None  # of an engine with a KV cache, from 0 to 1
        self.gpus: tuple[GpuUse, ...] = ()  # the last readings of those that the process may use
        self.tokens: TokenCounter | None = None  # of a language model that is or was loaded
        self.adapters: AdapterReport | None = None  # of a language model that loads adapters while it serves
        self._held = 0
        self._engine_queued = 0
        self.requests = 0
        self._monotonic = monotonic
        self._changed = monotonic()
        self._busy_seconds = 0.0

    @property
    def busy_seconds(self) -> float:
        """Return the slot-seconds until now; a queued request counts as one slot."""
        self._integrate()
        return self._busy_seconds

    @property
    def parts(self) -> Sequence[tuple[Mapping[str, str], Stats]]:
        """Return the statistics of each model with its metric labels."""
        return (({"revision": self.revision}, self),)

    def mark_served(self, memory: int = 0) -> None:
        """Record that the model is served from now on, and takes `memory` bytes."""
        self.memory = memory
        self.startup.ready_at = self._monotonic()

    def mark_unloaded(self) -> None:
        """Record that the model is not served any more."""
        self.memory = 0
        self.startup.ready_at = None

    def change(self, active: int = 0, queued: int = 0) -> None:
        """Add to (or with negative numbers, subtract from) the active and queued requests."""
        self._integrate()
        self.active += active
        self.queued += queued

    def set_engine(self, *, held: int, waiting: int, kv_share: float | None) -> None:
        """Record what an engine in a process of its own tells.

        `held` are the slots that the used part of its KV cache stands for, `waiting` the requests that wait inside it.
        """
        if (held, waiting) != (self._held, self._engine_queued):
            self._integrate()
            self._held, self._engine_queued = held, waiting
        self.kv_share = kv_share

    @property
    def busy(self) -> int:
        """Return the slots in use: the requests that are computed, or their share of the engine's KV cache if larger.

        Requests that wait inside the engine have a slot here, and count only as waiting.
        """
        return max(self.active - self._waiting_inside, self._held if self.active else 0)

    @property
    def waiting(self) -> int:
        """Return the requests that wait for a slot, here or inside the engine."""
        return self.queued + self._waiting_inside

    @property
    def _waiting_inside(self) -> int:
        return min(self._engine_queued, self.active)

    def to_json(self) -> dict[str, Any]:
        """Return the page `/stats`.

        Only that of a language model has `tokens`, `adapters` and `kvShare`, and only a server with GPUs has `gpu`.
        """
        return {
            "revision": self.revision,
            "slots": self.slots,
            "active": self.busy,
            "queued": self.waiting,
            "requests": self.requests,
            "busySeconds": self.busy_seconds,
            "memory": self.memory,
            "startup": self.startup.to_json(self._monotonic()),
            "download": self.startup.download.to_json(),
            "format": self.startup.format or None,
            "digest": self.startup.digest or None,
            **({"gpu": _use_of(self.gpus)} if self.gpus else {}),
            **({} if self.kv_share is None else {"kvShare": self.kv_share}),
            **({} if self.tokens is None else {"tokens": self.tokens.total.to_json()}),
            **({} if self.adapters is None else {"adapters": msgspec.to_builtins(self.adapters)}),
        }

    def _integrate(self) -> None:
        now = self._monotonic()
        self._busy_seconds += (self.busy + self.waiting) * (now - self._changed)
        self._changed = now


def _use_of(gpus: Sequence[GpuUse]) -> dict[str, float]:
    """Return the mean utilization of GPUs, if it is known, and the share of their memory that is in use."""
    known = [one.utilization for one in gpus if one.utilization is not None]
    memory = sum(one.used for one in gpus) / max(1, sum(one.memory for one in gpus))
    return {**({"utilization": sum(known) / len(known)} if known else {}), "memory": memory}
