"""The namespace controller: empty a Namespace that is being deleted, then remove its finalizer."""

from __future__ import annotations

import asyncio
import logging

from clusters.base.api import Cluster
from clusters.base.errors import Conflict, NotFound, Unavailable
from clusters.base.objects import NAMESPACE, Key, Object, is_deleting, key_of, name_of, namespace_of, uid_of
from clusters.embedded.store.history import ObjectChange
from clusters.embedded.store.store import Store
from clusters.embedded.store.writes import CONTENTS_FINALIZER
from clusters.embedded.workloads.object_deleter import ObjectDeleter, kind_of

log = logging.getLogger(__name__)

MANAGER = "namespace-controller"


class NamespaceController:
    """Empty Namespaces that are being deleted. Their deletion and each removal of an object in them trigger it."""

    def __init__(self, cluster: Cluster, store: Store, deleter: ObjectDeleter) -> None:
        self._cluster = cluster
        self._store = store
        self._deleter = deleter
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        for namespace in store.of_kind(NAMESPACE).values():
            self._enqueue(namespace)
        store.subscribe(self._on_change)

    async def run(self) -> None:
        """Reconcile Namespaces until cancelled."""
        while True:
            name = await self._queue.get()
            namespace = self._store.get(NAMESPACE, Key("", name))
            if namespace is not None and is_deleting(namespace):
                await self._delete_contents(namespace)

    def _on_change(self, change: ObjectChange) -> None:
        if change.kind.resource == NAMESPACE.resource:
            self._enqueue(change.after)
        elif change.removed or change.before is None:  # an object may be created while its namespace is being deleted
            self._enqueue(self._store.get(NAMESPACE, Key("", change.key.namespace)))

    def _enqueue(self, namespace: Object | None) -> None:
        if namespace is not None and is_deleting(namespace):
            self._queue.put_nowait(name_of(namespace))

    async def _delete_contents(self, namespace: Object) -> None:
        contents = [
            (kind_of(resource, obj), obj)
            for resource, obj in self._store.everything()
            if namespace_of(obj) == name_of(namespace)
        ]
        await self._deleter.delete_all((kind, obj) for kind, obj in contents if not is_deleting(obj))
        if not contents:
            await self._remove_finalizer(namespace)

    async def _remove_finalizer(self, namespace: Object) -> None:
        metadata = namespace["metadata"]
        left = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != CONTENTS_FINALIZER]
        patch = {"metadata": {"uid": uid_of(namespace), "finalizers": left}}
        try:
            await self._cluster.patch(NAMESPACE, metadata["name"], patch, manager=MANAGER)
        except (NotFound, Conflict):
            log.debug("namespace %s has changed", key_of(namespace))
        except Unavailable as error:
            log.warning("cannot remove the finalizer of namespace %s: %s", key_of(namespace), error)
            await self._deleter.pause()
            self._queue.put_nowait(metadata["name"])
