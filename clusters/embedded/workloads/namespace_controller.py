"""The end of a Namespace: first what is in it goes, then its finalizer, then the Namespace."""

from __future__ import annotations

import asyncio
import logging

from clusters.base.api import Cluster
from clusters.base.errors import Conflict, NotFound, Unavailable
from clusters.base.objects import NAMESPACE, Key, Object, is_deleting, key_of, name_of, namespace_of, uid_of
from clusters.embedded.store.history import Change
from clusters.embedded.store.store import Store
from clusters.embedded.store.writes import CONTENTS_FINALIZER
from clusters.embedded.workloads.reaper import Reaper, kind_of

log = logging.getLogger(__name__)

MANAGER = "namespace-controller"


class NamespaceCleaner:
    """Empties Namespaces that are being deleted; woken by their mark and by each object that leaves them."""

    def __init__(self, cluster: Cluster, store: Store, reaper: Reaper) -> None:
        self._cluster = cluster
        self._store = store
        self._reaper = reaper
        self._woken: asyncio.Queue[str] = asyncio.Queue()
        for namespace in store.of_kind(NAMESPACE).values():
            self._wake(namespace)
        store.subscribe(self._observe)

    async def run(self) -> None:
        """Clean until cancelled."""
        while True:
            name = await self._woken.get()
            namespace = self._store.get(NAMESPACE, Key("", name))
            if namespace is not None and is_deleting(namespace):
                await self._clean(namespace)

    def _observe(self, change: Change) -> None:
        if change.kind.resource == NAMESPACE.resource:
            self._wake(change.after)
        elif change.removed or change.before is None:  # one less, or one that slipped in beside the mark
            self._wake(self._store.get(NAMESPACE, Key("", change.key.namespace)))

    def _wake(self, namespace: Object | None) -> None:
        if namespace is not None and is_deleting(namespace):
            self._woken.put_nowait(name_of(namespace))

    async def _clean(self, namespace: Object) -> None:
        contents = [
            (kind_of(resource, obj), obj)
            for resource, obj in self._store.everything()
            if namespace_of(obj) == name_of(namespace)
        ]
        await self._reaper.delete_all((kind, obj) for kind, obj in contents if not is_deleting(obj))
        if not contents:
            await self._release(namespace)

    async def _release(self, namespace: Object) -> None:
        metadata = namespace["metadata"]
        left = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != CONTENTS_FINALIZER]
        patch = {"metadata": {"uid": uid_of(namespace), "finalizers": left}}
        try:
            await self._cluster.patch(NAMESPACE, metadata["name"], patch, manager=MANAGER)
        except (NotFound, Conflict):
            log.debug("namespace %s changed meanwhile", key_of(namespace))
        except Unavailable as error:
            log.warning("cannot release namespace %s: %s", key_of(namespace), error)
            await self._reaper.pause()
            self._woken.put_nowait(metadata["name"])
