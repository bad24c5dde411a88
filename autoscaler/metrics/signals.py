"""What a replica does with its GPUs, as its server reports it."""

from __future__ import annotations

from typing import NamedTuple


class Signals(NamedTuple):
    """What a replica does with its GPUs, each from 0 to 1: their utilization, their memory, and its KV cache."""

    gpu: float | None = None
    memory: float | None = None
    kv_cache: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the signals by name."""
        return {"gpu": self.gpu, "memory": self.memory, "kvCache": self.kv_cache}
