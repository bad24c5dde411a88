"""Enforce one digest for all replicas of a revision: record the first, confirm equal ones, delete Pods with other
files.

Replicas without a mounted record are not ready before their digest is confirmed
(`serving/modelserver/endpoints/confirmation.py`). Each such Pod is polled while it starts. It answers as soon as its
files are present, so the record is written while the model is loaded. Digests of ready replicas come with their
readings. `digest_rules.py` decides.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from autoscaler.metrics.digest_page import DigestSource
from autoscaler.metrics.stat import BadSample, NoSample, Sample
from autoscaler.reconciler.digest_rules import (
    ConfirmDigest,
    Deletions,
    DigestAction,
    RecordDigest,
    RefuseReplica,
    ReplicaDigest,
    judge,
    message_of,
)
from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION
from autoscaler.warmpool.claims.assignment import assignment_of, loads_anything
from autoscaler.warmpool.claims.pods import is_active
from clusters.base.api import Cluster
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import Conflict, NotFound
from clusters.base.objects import (
    POD,
    POD_AUTOSCALER,
    REVISION,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_of,
    key_of,
    uid_of,
    version_of,
)
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from clusters.runtime.informer import Informer
from clusters.runtime.recorder import Recorder

log = logging.getLogger(__name__)

MISMATCH: Final = "DigestMismatch"
"""Reason of the Event on the Revision, and of the PodAutoscaler's condition `ReplicasStarted`."""
RETRY: Final = 0.25  # s until a Pod that did not answer is polled again; doubles each time
LONGEST_RETRY: Final = 2.0  # s
_BACKOFF: Final = Backoff(RETRY, LONGEST_RETRY)
MOUNTED_FOR: Final = 1.0
"""Seconds until a starting Pod is polled even though the record exists: it may have been created before the record."""
POLL_AGAIN: Final = 10.0  # s until a confirmed Pod that is still not ready is polled again
SHOWN_FOR: Final = 60.0  # s for which a deletion stays in the status


@dataclass(slots=True)
class _Report:
    digest: str
    waits: bool


@dataclass(slots=True)
class _State:
    """The state of one revision; Pods by `namespace/name`."""

    record: str = ""
    reports: dict[str, _Report] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)  # starting Pods → when they are polled
    deletions: Deletions = field(default_factory=Deletions)
    failure: str = ""


class DigestEnforcer:
    """Follows the replicas of all revisions; `run` polls starting ones."""

    def __init__(
        self,
        cluster: Cluster,
        pods: Informer,
        source: DigestSource,
        recorder: Recorder,
        clock: Clock,
        manager: str,
    ) -> None:
        self._cluster = cluster
        self._own_writes = pods.own_writes
        self._source = source
        self._recorder = recorder
        self._clock = clock
        self._manager = manager
        self._states: dict[Key, _State] = {}
        self._polled: dict[Endpoint, Key] = {}
        self._changed = asyncio.Event()

    def observe(self, key: Key, samples: Mapping[str, Sample]) -> bool:
        """Record the readings of ready replicas; return whether a reconcile pass is needed."""
        state = self._states.setdefault(key, _State())
        changed = False
        for pod, sample in samples.items():
            known = state.reports.get(pod)
            if sample.digest and (known is None or known.digest != sample.digest):
                state.reports[pod] = _Report(sample.digest, waits=False)
                changed = changed or sample.digest != state.record
        return changed

    def failure(self, key: Key) -> str:
        """Return `Reason: message` of a replica that is refused or was deleted recently; "" without one."""
        state = self._states.get(key)
        return state.failure if state is not None else ""

    def forget(self, key: Key) -> None:
        """Delete the state of a revision that is gone."""
        self._states.pop(key, None)
        self._set_polled(key, ())

    async def reconcile(self, pod_autoscaler: Object, pods: Sequence[Object]) -> float | None:
        """Record, confirm and delete what is due; return the seconds until the next pass. Raises the cluster's
        errors.
        """
        key = key_of(pod_autoscaler)
        state = self._states.setdefault(key, _State())
        annotations = annotations_of(pod_autoscaler)
        state.record = annotations.get(LOADED_ANNOTATION) or state.record
        is_mounted = HELD_ANNOTATION in annotations
        deleting = self._own_writes.is_deleting
        present = {str(key_of(pod)): pod for pod in pods if is_active(pod) and not deleting(pod)}
        for known in (state.reports, state.due):
            for pod in known.keys() - present.keys():
                del known[pod]
        waits = [self._poll_starting(key, state, present, is_mounted=is_mounted)]
        verdicts = self._judge(state, present, is_mounted=is_mounted)
        match verdicts:
            case [RecordDigest(digest)]:  # the only verdict of a revision without a record
                state.record = await self._write(pod_autoscaler, digest)
                verdicts = self._judge(state, present, is_mounted=is_mounted)
        confirming = [self._confirm(state, present[one.pod]) for one in verdicts if isinstance(one, ConfirmDigest)]
        waits += await asyncio.gather(*confirming)
        waits.append(await self._refuse(pod_autoscaler, state, present, verdicts))
        return min((wait for wait in waits if wait is not None), default=None)

    async def run(self, enqueue: Callable[[Key], None]) -> None:
        """Poll starting Pods until cancelled; `enqueue` receives each revision with a response."""
        tasks: dict[Endpoint, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for endpoint in tasks.keys() - self._polled.keys():
                    tasks.pop(endpoint).cancel()
                for endpoint in self._polled.keys() - tasks.keys():
                    tasks[endpoint] = group.create_task(self._poll(self._polled[endpoint], endpoint, enqueue))
                await self._changed.wait()
                self._changed.clear()

    def _judge(self, state: _State, present: Mapping[str, Object], *, is_mounted: bool) -> list[DigestAction]:
        replicas = [
            ReplicaDigest(pod, report.digest, is_ready(present[pod]), report.waits)
            for pod, report in state.reports.items()
            if pod in present
        ]
        return judge(replicas, state.record, state.deletions, self._clock.monotonic(), is_mounted=is_mounted)

    async def _write(self, pod_autoscaler: Object, digest: str) -> str:
        """Write the record unless there is one; return the record in effect. Raises Conflict.

        The record is written once for all processes: `pod_autoscaler` may be older than another process's write.
        """
        key = key_of(pod_autoscaler)
        present = await self._cluster.get(POD_AUTOSCALER, key.name, key.namespace)
        if uid_of(present) != uid_of(pod_autoscaler):
            raise Conflict(f"PodAutoscaler {key} was recreated meanwhile: try again")
        if recorded := annotations_of(present).get(LOADED_ANNOTATION):
            return recorded
        metadata = {"resourceVersion": version_of(present), "annotations": {LOADED_ANNOTATION: digest}}
        patch = {"metadata": metadata}
        await self._cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=self._manager)
        return digest

    async def _confirm(self, state: _State, pod: Object) -> float | None:
        """Send the record to a replica that waits for it; a replica that rejects it is polled again."""
        name, endpoint = str(key_of(pod)), endpoint_of(pod)
        report = state.reports[name]
        try:
            if endpoint is not None:
                await self._source.confirm(endpoint, state.record)
                report.waits = False
                state.due[name] = self._clock.monotonic() + POLL_AGAIN
                return None
        except (NoSample, BadSample) as error:
            log.info("the digest of %s cannot be confirmed: %s", name, error)
        state.reports.pop(name, None)  # its container may have restarted with other files
        return RETRY

    async def _refuse(
        self, pod_autoscaler: Object, state: _State, present: Mapping[str, Object], verdicts: Sequence[DigestAction]
    ) -> float | None:
        """Delete Pods with other files than the record's, with one Event each."""
        refused = [one for one in verdicts if isinstance(one, RefuseReplica)]
        now = self._clock.monotonic()
        if not refused:
            left = state.deletions.last + SHOWN_FOR - now
            state.failure = state.failure if left > 0.0 else ""
            return left if left > 0.0 else None
        state.failure = f"{MISMATCH}: {_message(refused[0], present[refused[0].pod], pod_autoscaler, state.record)}"
        due = [one for one in refused if one.after <= 0.0]
        for one in due:
            pod = present[one.pod]
            key, message = key_of(pod), _message(one, pod, pod_autoscaler, state.record)
            log.warning("%s", message)
            with suppress(NotFound, Conflict):  # it is gone, or its name has been reused
                await self._cluster.delete(POD, key.name, key.namespace, uid=uid_of(pod))
            self._own_writes.record_deletion(pod)
            state.reports.pop(str(key), None)
            await self._recorder.event(*_about(pod_autoscaler), "Warning", MISMATCH, message)
        if due:
            state.deletions = state.deletions.added(now)
            return SHOWN_FOR
        return min((one.after for one in refused if one.after < math.inf), default=None)

    def _poll_starting(
        self, key: Key, state: _State, present: Mapping[str, Object], *, is_mounted: bool
    ) -> float | None:
        """Poll each Pod that may wait for its confirmation; return the seconds until the next one is due."""
        now, due_now, waits = self._clock.monotonic(), [], []
        for name, pod in present.items():
            endpoint = endpoint_of(pod)
            if endpoint is None or is_ready(pod) or not loads_anything(pod):
                continue
            report = state.reports.get(name)
            if report is not None and (report.waits or report.digest != state.record):
                continue
            due = state.due.setdefault(name, now + (MOUNTED_FOR if is_mounted else 0.0))
            if due <= now:
                due_now.append(endpoint)
            else:
                waits.append(due - now)
        self._set_polled(key, due_now)
        return min(waits, default=None)

    def _set_polled(self, key: Key, endpoints: Sequence[Endpoint]) -> None:
        """Poll these Pods of the revision, and no others."""
        former = {endpoint for endpoint, its in self._polled.items() if its == key}
        if former == set(endpoints):
            return
        for endpoint in former - set(endpoints):
            del self._polled[endpoint]
        self._polled |= dict.fromkeys(endpoints, key)
        self._changed.set()

    async def _poll(self, key: Key, endpoint: Endpoint, enqueue: Callable[[Key], None]) -> None:
        """Poll one Pod until it has answered."""
        failures = 0
        while True:
            try:
                loaded = await self._source.loaded(endpoint)
                if loaded.confirmed or loaded.digest:
                    break
                failures = 0
            except (NoSample, BadSample) as error:
                log.debug("%s", error)
            except Exception:  # an error in one Pod must not stop the others
                log.exception("%s: its digest cannot be read", endpoint.pod)
            await self._clock.sleep(_BACKOFF.delay(failures))
            failures += 1
        self._polled.pop(endpoint, None)
        self._changed.set()
        state = self._states.get(key)
        if state is None:
            return
        if loaded.confirmed:
            state.due[endpoint.pod] = self._clock.monotonic() + POLL_AGAIN
        else:
            state.reports[endpoint.pod] = _Report(loaded.digest, waits=True)
        enqueue(key)


def _message(refused: RefuseReplica, pod: Object, pod_autoscaler: Object, record: str) -> str:
    revision = key_of(pod_autoscaler).name
    assignment = assignment_of(pod, revision)  # of a Pod, whose annotations are those of its template
    return message_of(refused, revision, record, assignment.name if assignment is not None else "NAME")


def _about(pod_autoscaler: Object) -> tuple[Kind, Object]:
    """Return the object of Events: the Revision, or a PodAutoscaler without one."""
    owner = controller_of(pod_autoscaler)
    if owner is None or owner.get("kind") != REVISION.kind:
        return POD_AUTOSCALER, pod_autoscaler
    metadata = {"name": owner["name"], "namespace": key_of(pod_autoscaler).namespace, "uid": owner["uid"]}
    return REVISION, {"metadata": metadata}
