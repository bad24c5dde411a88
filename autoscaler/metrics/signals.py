"""Readings of the use of a replica's GPUs."""

from __future__ import annotations

from typing import NamedTuple


class Signals(NamedTuple):
    """Use of a replica's GPUs, each from 0 to 1: utilization, memory, and KV cache; None if unknown."""

    gpu: float | None = None
    memory: float | None = None
    kv_cache: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the signals by name."""
        return {"gpu": self.gpu, "memory": self.memory, "kvCache": self.kv_cache}
