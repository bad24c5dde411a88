"""The controller of WarmPools: which changes in the cluster wake which WarmPool.

A seed's Configuration says all that its Revision says, so Revisions need not be watched.
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
"""A few pools, each written once in a long while."""


class WarmPoolController:
    """Runs passes over WarmPools whenever they, or what stands in their seeds' place, change.

    Make it before `informers.run()`: it asks for the informers that it needs.
    """

    def __init__(self, cluster: Cluster, informers: Informers, *, settings: Settings) -> None:
        self._informers = informers
        reconciler = WarmPoolReconciler(cluster, informers, settings)
        self.controller = Controller("warm pool", reconciler.reconcile, workers=WORKERS)
        self.controller.watches(informers[WARM_POOL])
        self.controller.watches_owned(informers[CONFIGURATION], WARM_POOL)
        self.controller.watches_mapped(informers[CONFIGURATION], _by_name)
        self.controller.watches_mapped(informers[NAMESPACE], self._in_it)

    def _in_it(self, namespace: Object) -> list[Key]:
        """The WarmPools in a namespace, whose labels say whether code may run."""
        return [key_of(pool) for pool in self._informers[WARM_POOL] if namespace_of(pool) == name_of(namespace)]

    async def run(self) -> None:
        """Work until cancelled, once every informer holds its first list."""
        await self._informers.synced()
        await self.controller.run()


def _by_name(configuration: Object) -> list[Key]:
    """The WarmPool whose seed's name it bears: it may have been in its way."""
    pool = pool_of_seed(key_of(configuration))
    return [pool] if pool is not None else []
