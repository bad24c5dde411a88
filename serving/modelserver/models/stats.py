"""How busy a server of many models is: each of them, and all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving.modelserver.base.stats import StartupTimes, Stats


class ManyStats(Stats):
    """Sums over the models that were added."""

    def __init__(self, monotonic: Callable[[], float], startup: StartupTimes | None = None) -> None:
        super().__init__(monotonic, startup=startup)
        self._models: dict[str, Stats] = {}

    def add(self, name: str, stats: Stats) -> None:
        """Of one model."""
        self._models[name] = stats

    @property
    def parts(self) -> Sequence[tuple[Mapping[str, str], Stats]]:
        """By the labels of metrics."""
        return [({"model": name, "revision": stats.revision}, stats) for name, stats in self._models.items()]

    def to_json(self) -> dict[str, Any]:
        """The page `/stats`."""
        models = {name: stats.to_json() for name, stats in self._models.items()}
        summed = ("slots", "active", "queued", "requests", "busySeconds", "memory")
        sums = {name: sum(page[name] for page in models.values()) for name in summed}
        return {**super().to_json(), **sums, "models": models}
