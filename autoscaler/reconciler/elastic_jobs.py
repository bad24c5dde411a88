"""Size elastic training jobs: they get the GPUs that serving leaves, and give them back at once.

`GpuSharing` decides the sizes; this module patches them, with an Event on the job that says why. A size is a field of
the job, so a new leader continues with the present one. Where the scheduler cannot preempt (devices of ResourceSlices),
Pods are deleted on the nodes on which GPUs are needed, after the job is smaller.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from autoscaler.gpu.elastic import ElasticJob, elastic_fault, read_job
from autoscaler.gpu.sharing import GpuSharing, JobKey
from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, NotFound
from clusters.base.objects import POD, Key, Kind, Object, is_deleting, name_of, uid_of
from clusters.runtime.controller import Controller
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

GIVES: Final = "GivesGPUs"
GETS: Final = "GetsGPUs"
INVALID: Final = "InvalidElastic"
CHOICE: Final = 2.0
"""Seconds in which the controller of a job that became smaller deletes Pods of its choice."""


class ElasticJobs:
    """Patches the sizes of elastic jobs, with one controller for each of their kinds."""

    def __init__(self, cluster: Cluster, gpus: GpuSharing, recorder: Recorder, manager: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._chosen_at: dict[JobKey, float] = {}
        self._gpus = gpus
        self._recorder = recorder
        self._manager = manager
        self._by_kind = {
            kind: Controller(f"elastic {kind.plural}", partial(self._reconcile, kind), workers=1)
            for kind in gpus.elastic
        }
        for kind, controller in self._by_kind.items():
            controller.watches(gpus.elastic[kind])
        self.controllers = tuple(self._by_kind.values())
        gpus.on_sizes = self._enqueue

    def _enqueue(self, jobs: Sequence[JobKey]) -> None:
        for job in jobs:
            self._by_kind[job.kind].queue.add(job.key)

    async def _reconcile(self, kind: Kind, key: Key) -> float | None:
        """Run one pass. Raises the cluster's errors."""
        obj = self._gpus.elastic[kind].get(key.name, key.namespace)
        if obj is None or is_deleting(obj):
            self._chosen_at.pop(JobKey(kind, key), None)
            return None
        if fault := elastic_fault(kind, obj):
            await self._recorder.event(kind, obj, "Warning", INVALID, fault)
        job, target = read_job(kind, obj), self._gpus.size(JobKey(kind, key))
        if job is None or job.over or target is None:
            return None
        if target != job.size:
            await self._resize(JobKey(kind, key), obj, job, target)
            self._chosen_at[JobKey(kind, key)] = self._clock.monotonic() + CHOICE
            return CHOICE
        # A change of the job calls this pass at once, before its controller has chosen.
        if (left := self._chosen_at.get(JobKey(kind, key), 0.0) - self._clock.monotonic()) > 0:
            return left
        for pod in self._gpus.victims(JobKey(kind, key)):
            if not is_deleting(pod):
                log.info("%s %s gives back %s: its node is needed", kind.kind, key, name_of(pod))
                with contextlib.suppress(NotFound, Conflict):
                    await self._cluster.delete(POD, name_of(pod), key.namespace, uid=uid_of(pod))
        return None

    async def _resize(self, key: JobKey, obj: Object, job: ElasticJob, target: int) -> None:
        await self._cluster.patch(
            key.kind, key.key.name, job.patch(target), key.key.namespace, manager=self._manager, type=job.patch_type
        )
        reason, message = self._message(key, job, target)
        log.info("%s %s: %d → %d: %s", key.kind.kind, key.key, job.size, target, message)
        await self._recorder.event(key.kind, obj, "Normal", reason, message)

    def _message(self, key: JobKey, job: ElasticJob, target: int) -> tuple[str, str]:
        """Return reason and message of the Event."""
        shape = self._gpus.shape(key)
        units, resource = shape.amount, shape.resource
        if target > job.size:
            return GETS, f"gets {(target - job.size) * units} {resource} that are free: {target} of {job.most} workers"
        gainers = self._gpus.gainers(key)
        to = f" to {', '.join(gainers)}" if gainers else ""
        given = f"gives {(job.size - target) * units} of {job.size * units} {resource}{to}"
        return GIVES, f"{given}: {target} of {job.most} workers"
