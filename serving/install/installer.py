"""Apply the objects of an installation in order, and remove those of a former installation that are not in it.

Every step can be repeated, so an interrupted installation is simply run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import DEPLOYMENT, NAMESPACE, SECRET, Key, Kind, Object, key_of, name_of, uid_of
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install import pool_key
from serving.install.bundle import LABEL, PART_OF
from serving.install.configuration import is_settings, lacks_gateway, settings_of, with_settings
from serving.install.kinds import CRD, ORDER, kind_of
from serving.install.knative import Ingress, find_ingress
from serving.install.pool_key import make_pool_key
from serving.install.waiting import Report, WaitDeadline, not_available, not_established
from serving.reconciler.apply import FIELD_MANAGER
from serving.types.settings.settings import Settings

Done = Literal["created", "configured", "unchanged", "deleted"]
_SERVERS = ("managedFields", "resourceVersion", "generation")
"""Metadata that the API server sets."""


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """The change of one object, or with a dry run the change that would be made."""

    kind: Kind
    key: Key
    done: Done

    def __str__(self) -> str:
        return f"{self.kind.kind.lower()} {self.key} {self.done}"


class Installer:
    """An installation. With `dry_run`, the API server validates the changes and makes none."""

    def __init__(self, cluster: Cluster, report: Report, dry_run: bool = False) -> None:
        self._cluster = cluster
        self._report = report
        self._dry_run = dry_run
        self.settings: Settings | None = None
        self.notes: tuple[str, ...] = ()
        """Notes on the ingress, available after the settings are applied."""

    async def apply(self, objects: Sequence[Object], deadline: WaitDeadline) -> list[ManifestChange]:
        """Apply all objects; wait for definitions before objects that need them. Raises NotDone, ClusterError."""
        changes: list[ManifestChange] = []
        for obj in objects:
            kind = kind_of(obj)
            if kind is DEPLOYMENT and not any(change.kind is SECRET for change in changes):
                made = await make_pool_key(self._cluster, self._dry_run)  # before the Pods that mount it
                key = Key(SYSTEM_NAMESPACE, pool_key.NAME)
                changes.append(ManifestChange(SECRET, key, "created" if made else "unchanged"))
            self._report(f"{kind.kind.lower()} {name_of(obj)}")
            changes.append(await self._apply(kind, obj))
            if kind is CRD and not self._dry_run:
                await deadline.until(partial(not_established, self._cluster, name_of(obj)))
        return [*changes, *await self._prune(objects)]

    async def wait(self, objects: Sequence[Object], deadline: WaitDeadline) -> None:
        """Wait until every Deployment runs as applied. Raises NotDone."""
        for obj in objects:
            if kind_of(obj) is DEPLOYMENT:
                await deadline.until(partial(not_available, self._cluster, key_of(obj)))

    async def _apply(self, kind: Kind, obj: Object) -> ManifestChange:
        key = key_of(obj)
        live = await _live(self._cluster, kind, key)
        if is_settings(kind, obj):
            obj = await self._settle(obj, live)
        if self._dry_run and live is None:  # in a dry run its namespace may not exist
            return ManifestChange(kind, key, "created")
        answer = await self._cluster.apply(kind, obj, manager=FIELD_MANAGER, force=True, dry_run=self._dry_run)
        if live is None:
            return ManifestChange(kind, key, "created")
        return ManifestChange(kind, key, "unchanged" if _said(live) == _said(answer) else "configured")

    async def _settle(self, wanted: Object, live: Object | None) -> Object:
        """Return the ConfigMap of settings, with the ingress filled in if it is not set."""
        ingress = await find_ingress(self._cluster) if lacks_gateway(wanted, live) else Ingress()
        made = with_settings(wanted, live, ingress)
        self.settings, self.notes = settings_of(made), ingress.notes
        return made

    async def _prune(self, objects: Sequence[Object]) -> list[ManifestChange]:
        """Remove objects of a former installation: another overlay, or an older release."""
        wanted = {(kind_of(obj), key_of(obj)) for obj in objects}
        namespaces = sorted({key.namespace for _, key in wanted if key.namespace})
        changes = []
        for kind in reversed(ORDER):
            for obj in await installed(self._cluster, kind, namespaces) if kind not in (NAMESPACE, CRD) else ():
                if (kind, key_of(obj)) in wanted:
                    continue
                if not self._dry_run:
                    await remove(self._cluster, kind, obj)
                changes.append(ManifestChange(kind, key_of(obj), "deleted"))
        return changes


async def installed(cluster: Cluster, kind: Kind, namespaces: Sequence[str]) -> list[Object]:
    """Return the objects of a kind with our label; of namespaced kinds, those in `namespaces`."""
    selector = f"{LABEL}={PART_OF}"
    if not kind.namespaced:
        return list((await cluster.list(kind, selector=selector)).items)
    return [obj for namespace in namespaces for obj in (await cluster.list(kind, namespace, selector)).items]


async def remove(cluster: Cluster, kind: Kind, obj: Object) -> None:
    """Delete exactly this object. It is not an error if it is already gone."""
    key = key_of(obj)
    try:
        await cluster.delete(kind, key.name, key.namespace, uid=uid_of(obj))
    except NotFound:
        return


async def _live(cluster: Cluster, kind: Kind, key: Key) -> Object | None:
    try:
        return await cluster.get(kind, key.name, key.namespace)
    except NotFound:
        return None


def _said(obj: Object) -> Object:
    """Return the object without status and server metadata: the part that an installation may change."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVERS}
    return {**{name: value for name, value in obj.items() if name != "status"}, "metadata": metadata}
