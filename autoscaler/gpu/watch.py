"""Nodes, Pods with GPUs, devices and elastic jobs of a cluster, read while they are needed.

All jobs are watched, since they are elastic by an annotation, which a list cannot select. All other objects are
watched only while a Revision, a warm pool or an elastic job has GPUs. Of each object only the fields of the inventory
are kept, and Pods without GPUs not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final

from autoscaler.gpu import hami
from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.elastic import ANNOTATION_ELASTIC
from autoscaler.gpu.holdings import Snapshot, make_snapshot
from autoscaler.gpu.units import part_of_gpu
from autoscaler.warmpool.claims.pods import FINISHED
from clusters.base.api import Cluster, Trim
from clusters.base.clock import Clock
from clusters.base.objects import (
    ANNOTATION_GPU_FRACTION,
    DEVICE_CLASS,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Kind,
    Object,
    annotations_of,
)
from clusters.runtime.informer import Informer

KEPT_FOR: Final = 300.0
"""Seconds for which the objects are still watched when they are not needed: a model may be scaled or deployed again."""
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")


class GpuWatch:
    """The informers of the GPU inventory. `run` runs them; `elastic` are the informers of elastic jobs by kind."""

    def __init__(self, cluster: Cluster, clock: Clock, job_kinds: Mapping[Kind, Trim]) -> None:
        self._cluster = cluster
        self._clock = clock
        self.elastic = {
            kind: Informer(cluster, kind, clock=clock, trim=trim, optional=True) for kind, trim in job_kinds.items()
        }
        self._informers: dict[Kind, Informer] = {}
        self._users: set[Hashable] = set()
        self._used = asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._callbacks: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of the objects."""
        self._callbacks.append(changed)

    def use(self, user: Hashable, *, needed: bool) -> None:
        """Record whether `user` needs the inventory."""
        if needed:
            self._users.add(user)
            self._used.set()
        else:
            self._users.discard(user)

    @property
    def synced(self) -> bool:
        """Whether the objects were read, so that `snapshot` is what the cluster has."""
        return bool(self._informers) and all(one.is_synced for one in self._informers.values())

    def snapshot(self) -> Snapshot:
        """Return the inventory and who holds it."""
        if self._snapshot is None:
            found = {kind: list(informer) for kind, informer in self._informers.items()}
            dra = DraObjects(*(found.get(kind, ()) for kind in (RESOURCE_SLICE, DEVICE_CLASS, RESOURCE_CLAIM)))
            self._snapshot = make_snapshot(found.get(NODE, ()), found.get(POD, ()), dra)
        return self._snapshot

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.elastic.values():
                informer.subscribe(self._changed)
                group.create_task(informer.run(), name=f"informer {informer.kind}")
            while True:
                await self._used.wait()
                await self._watch()

    async def _watch(self) -> None:
        """Watch all other objects until they have been unused for `KEPT_FOR`."""
        for kind, trim in _TRIMS.items():
            informer = Informer(self._cluster, kind, clock=self._clock, trim=trim, optional=True)
            informer.subscribe(self._changed)
            self._informers[kind] = informer
        tasks = [asyncio.create_task(one.run(), name=f"informer {one.kind}") for one in self._informers.values()]
        try:
            unused_since = None
            while unused_since is None or self._clock.monotonic() - unused_since < KEPT_FOR:
                await self._clock.sleep(KEPT_FOR / 10)
                unused_since = None if self._users else unused_since or self._clock.monotonic()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._informers, self._snapshot = {}, None
            self._used.clear()

    def _changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None and after is not None and _content(before) == _content(after):
            return  # such as a heartbeat of a node
        self._snapshot = None
        for callback in self._callbacks:
            callback()


def _content(obj: Object) -> Object:
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    return {**obj, "metadata": metadata}


def trim_job(job: Object) -> Object | None:
    """Return an elastic job with all fields; None for another one."""
    return job if ANNOTATION_ELASTIC in annotations_of(job) else None


def trim_pod(pod: Object) -> Object | None:
    """Return the fields of a Pod that count; None for one without extended resources and devices."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = {name: _containers(spec.get(name)) for name in ("initContainers", "containers")}
    has_gpus = any(containers.values()) or spec.get("resourceClaims") or part_of_gpu(pod)
    if status.get("phase") in FINISHED or not has_gpus:
        return None
    others = {name: spec[name] for name in ("nodeName", "nodeSelector", "tolerations") if name in spec}
    conditions = [one for one in status.get("conditions") or () if one.get("type") == "PodScheduled"]
    kept = {"phase": status.get("phase"), "conditions": conditions}
    head = _head(pod, hami.POD_ANNOTATION, ANNOTATION_GPU_FRACTION)
    return {**head, "spec": {**containers, **others}, "status": kept}


def _containers(containers: Iterable[Object] | None) -> list[Object]:
    """Return the containers with extended resources, and these only."""
    found = []
    for one in containers or ():
        resources = one.get("resources") or {}
        kept = {
            part: {name: text for name, text in (resources.get(part) or {}).items() if "/" in name}
            for part in ("requests", "limits")
        }
        if any(kept.values()):
            found.append(
                {"resources": kept, **({"restartPolicy": one["restartPolicy"]} if "restartPolicy" in one else {})}
            )
    return found


def _trim_node(node: Object) -> Object:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    allocatable = {name: text for name, text in (status.get("allocatable") or {}).items() if "/" in name}
    ready = [
        {"type": "Ready", "status": one.get("status")}
        for one in status.get("conditions") or ()
        if one.get("type") == "Ready"
    ]
    kept = {name: spec[name] for name in ("unschedulable", "taints") if name in spec}
    head = _head(node, hami.NODE_ANNOTATION)
    return {**head, "spec": kept, "status": {"allocatable": allocatable, "conditions": ready}}


def _trim_claim(claim: Object) -> Object | None:
    status = claim.get("status") or {}
    kept = {name: status[name] for name in ("allocation", "reservedFor") if name in status}
    return {**_head(claim), "status": kept} if kept else None


def _trim_other(obj: Object) -> Object:
    return {**_head(obj), "spec": obj.get("spec") or {}}


def _head(obj: Object, *annotations: str) -> Object:
    metadata = {name: obj["metadata"][name] for name in _METADATA if name in obj["metadata"]}
    given = obj["metadata"].get("annotations") or {}
    if kept := {name: given[name] for name in annotations if name in given}:
        metadata["annotations"] = kept
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata}


_TRIMS: Final[Mapping[Kind, Trim]] = {
    NODE: _trim_node,
    POD: trim_pod,
    RESOURCE_SLICE: _trim_other,
    DEVICE_CLASS: _trim_other,
    RESOURCE_CLAIM: _trim_claim,
}
