"""A controller that is killed between two writes."""

from __future__ import annotations

from typing import Any

from clusters.base.errors import Unavailable
from clusters.embedded.cluster import EmbeddedCluster
from tests.serving.reconciler.test_convergence import WRITES


class Mortal:
    """A cluster that accepts a number of writes and then none, as if the caller was killed."""

    def __init__(self, cluster: EmbeddedCluster, writes: int) -> None:
        self._cluster = cluster
        self.left = writes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Unavailable("killed")
            return await method(*arguments, **options)

        return call if name in WRITES else method
