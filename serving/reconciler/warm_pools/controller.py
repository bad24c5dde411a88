"""The controller of WarmPools: maps changes in the cluster to the WarmPools that need a pass.

Revisions are not watched: the Configuration of a seed has all the conditions of its Revision.
"""

from __future__ import annotations

from clusters.base.api import Cluster
from clusters.base.objects import CONFIGURATION, NAMESPACE, WARM_POOL, Key, Object, key_of, name_of, namespace_of
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from serving.makers.warm_pool import pool_of_seed
from serving.reconciler.warm_pools.reconciler import WarmPoolReconciler
from serving.types.settings.settings import Settings

WORKERS = 1
"""There are few pools, and their seeds rarely change."""


class WarmPoolController:
    """Runs a pass over a WarmPool when the pool, its namespace, or an object with its seed's name changes.

    Create it before `informers.run()`, since it creates the informers that it needs. `parts_of_gpus` is whether the
    cluster's kubelet gives Pods parts of a GPU.
    """

    def __init__(self, cluster: Cluster, informers: Informers, *, settings: Settings, parts_of_gpus: bool) -> None:
        self._informers = informers
        reconciler = WarmPoolReconciler(cluster, informers, settings, parts_of_gpus=parts_of_gpus)
        self.controller = Controller("warm pool", reconciler.reconcile, workers=WORKERS)
        self.controller.watches(informers[WARM_POOL])
        self.controller.watches_owned(informers[CONFIGURATION], WARM_POOL)
        self.controller.watches_mapped(informers[CONFIGURATION], self._pool_of_seed_name)
        self.controller.watches_mapped(informers[NAMESPACE], self._pools_in)

    def _pools_in(self, namespace: Object) -> list[Key]:
        """Return the WarmPools in a namespace, whose label allows or forbids code."""
        return [key_of(pool) for pool in self._informers[WARM_POOL] if namespace_of(pool) == name_of(namespace)]

    @staticmethod
    def _pool_of_seed_name(configuration: Object) -> list[Key]:
        """Return the WarmPool for whose seed the Configuration has the name: it may have blocked that seed."""
        pool = pool_of_seed(key_of(configuration))
        return [pool] if pool is not None else []

    async def run(self) -> None:
        """Run until cancelled. Passes begin when every informer has its first list."""
        await self._informers.synced()
        await self.controller.run()
