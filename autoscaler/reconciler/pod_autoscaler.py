"""Reconcile one PodAutoscaler of our class: read spec and state, scale, set traffic, update status.

The MultiScaler decides the number of replicas (at ticks, at wake-ups from zero, and here when the spec changes); this
module applies it. Scale-up comes first in the pass, since requests wait for it; status updates come last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autoscaler.metrics.collector import ScrapeTarget
from autoscaler.reconciler.dependencies import Dependencies
from autoscaler.reconciler.observed import ObservedRevision
from autoscaler.reconciler.pending_scale import PendingScale
from autoscaler.reconciler.scale_down_order import ScaleDownOrder
from autoscaler.reconciler.scale_to_zero import ZeroVerdict
from autoscaler.reconciler.serverless_service import (
    ModeInputs,
    ServiceMode,
    changed_fields,
    make_serverless_service,
    wanted_activators,
    wanted_mode,
)
from autoscaler.reconciler.spec import (
    RevisionSpec,
    is_reachable,
    make_revision_spec,
    seconds_to_expiry,
    seconds_to_schedule,
)
from autoscaler.reconciler.start_failures import UNSCHEDULABLE, find_start_failure, seconds_to_unschedulable
from autoscaler.reconciler.status import (
    WAITING_FOR_GPU,
    Scale,
    active_threshold,
    is_initialized,
    is_reported,
    make_status,
)
from autoscaler.scaling.measurements import UNDECIDED
from autoscaler.types import AUTO, HELD_ANNOTATION, POLICY_ANNOTATION, InvalidPolicy, Policy, is_ours
from autoscaler.warmpool.claims.pods import is_active
from clusters.base.objects import (
    DEPLOYMENT,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Object,
    annotations_of,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)

log = logging.getLogger(__name__)

MANAGER = "knodel-autoscaler"


@dataclass(frozen=True, slots=True)
class _Path:
    """The inputs of the last pass's service mode, and the mode."""

    ready: int
    slots: float
    burst: float
    mode: ServiceMode = ServiceMode.PROXY


class PodAutoscalerReconciler:
    """Reconciles PodAutoscalers; `targets` returns the replicas that a tick reads."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._deps = dependencies
        self._policies: dict[Key, Policy] = {}
        self._targets: dict[Key, ScrapeTarget] = {}
        self._paths: dict[Key, _Path] = {}
        self._reported: dict[Key, str] = {}
        self._uids: dict[Key, str] = {}
        self._pending = PendingScale()
        self._scale_down_order = ScaleDownOrder(dependencies.cluster, MANAGER)

    def targets(self, keys: Iterable[Key]) -> dict[Key, ScrapeTarget]:
        """Return the ready replicas of these revisions as of their last pass, without revisions that have none."""
        found = ((key, self._targets.get(key)) for key in keys)
        return {key: target for key, target in found if target is not None and target.endpoints}

    def misplaced(self, keys: Iterable[Key]) -> list[Key]:
        """Return the revisions whose service mode should change because of their present work."""
        found = ((key, self._paths.get(key)) for key in keys if key in self._deps.scaler)
        paths = {key: path for key, path in found if path is not None and path.burst > 0}
        works = self._deps.scaler.current_works(list(paths), self._deps.clock.monotonic())
        by_work = zip(paths.items(), works, strict=True)
        return [key for (key, path), work in by_work if self._wanted_mode(key, path, work) is not path.mode]

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass; return the seconds until the next one, or None."""
        deps = self._deps
        pod_autoscaler = deps.reader.pod_autoscaler(key)
        if pod_autoscaler is None or is_deleting(pod_autoscaler) or not is_ours(pod_autoscaler):
            self._forget(key)
            return None
        if self._uids.setdefault(key, uid_of(pod_autoscaler)) != uid_of(pod_autoscaler):
            self._forget(key)  # recreated under the same name
            self._uids[key] = uid_of(pod_autoscaler)
        observed = deps.reader.observe(pod_autoscaler)
        if observed.deployment is None:
            deps.scaler.remove(key)
            return None  # its creation enqueues this key
        await deps.ledger.learn_gpu_types(observed.pods)
        deps.ledger.observe(pod_autoscaler, observed.deployment, observed.pods)
        now = deps.clock.now()  # one time for the whole pass, so that nothing is due in the middle of it
        spec = await self._read_spec(key, pod_autoscaler, now)
        self._update_scaler(key, observed, observed.deployment, spec)
        if (wait := await self._scale_up(key, observed, observed.deployment)) is not None:
            return wait
        waits = [await deps.warm.finish(key, observed.deployment)]  # first, because later writes may be rejected
        waits.append(await deps.digests.reconcile(pod_autoscaler, observed.pods))
        service = await self._serverless_service(key, observed, spec)
        waits.append(await self._scale_down(key, observed, service))
        await self._report(key, observed, service, spec)
        await deps.adapters.hasten(key, pod_autoscaler, observed.pods)
        await deps.availability.record_event(key, pod_autoscaler, may_be_zero=spec.may_be_zero)
        waits.append(await deps.decisions.write(pod_autoscaler))
        waits.append(await deps.ledger.write(pod_autoscaler))
        waits += [
            seconds_to_expiry(pod_autoscaler, deps.settings.zero, now),
            seconds_to_unschedulable(observed.pods, now),
        ]
        waits.append(seconds_to_schedule(spec, now))
        return min((wait for wait in waits if wait is not None), default=None)

    def _forget(self, key: Key) -> None:
        deps = self._deps
        others = (deps.collector, deps.scale_to_zero, deps.decisions, deps.progress, deps.starts, deps.warm)
        for memory in (self._pending, deps.availability, deps.ledger, deps.digests, deps.adapters, *others):
            memory.forget(key)
        if deps.gpus is not None:
            deps.gpus.forget_revision(key)
        deps.scaler.remove(key)
        known: tuple[dict[Key, Any], ...] = (self._policies, self._targets, self._paths, self._reported, self._uids)
        for one in known:
            one.pop(key, None)

    async def _read_spec(self, key: Key, pod_autoscaler: Object, now: datetime) -> RevisionSpec:
        """Return the spec. For an invalid policy, use the last valid one and record an Event."""
        try:
            self._policies[key] = Policy.from_annotations(annotations_of(pod_autoscaler))
            self._reported.pop(key, None)
        except InvalidPolicy as error:
            if self._reported.get(key) != str(error):
                log.warning("%s: %s (annotation %s)", key, error, POLICY_ANNOTATION)
                recorder = self._deps.recorder
                await recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", "InvalidPolicy", str(error))
                self._reported[key] = str(error)
        policy, zero = self._policies.get(key, Policy()), self._deps.settings.zero
        if not self._deps.signal_available():
            zero = replace(zero, enabled=False)
        return make_revision_spec(pod_autoscaler, policy, zero, now)

    def _update_scaler(self, key: Key, observed: ObservedRevision, deployment: Object, spec: RevisionSpec) -> None:
        """Pass spec and state to the MultiScaler; decide when the spec has changed."""
        scaler, now = self._deps.scaler, self._deps.clock.monotonic()
        new = key not in scaler
        columns, set_to = spec.columns, spec.policy.scale_to_zero_after
        if not spec.may_be_zero:
            self._deps.warm.unfollow(key)
        elif hold := self._deps.warm.follow(key, deployment, None if set_to == AUTO else set_to):
            columns = {**columns, "scale_to_zero_after": hold.seconds}  # by the plan of the warm pool
        changed = scaler.set_spec(key, columns)
        if self._deps.gpus is not None:
            more = self._surge(key, observed)
            template = deployment["spec"]["template"]
            self._deps.gpus.observe_revision(key, observed.pod_autoscaler, template, spec.least, more)
        if new:
            self._deps.starts.restore(key, observed.pod_autoscaler)
        self._count_replicas(key, observed, max(observed.current, self._pending.replicas(key)))
        self._targets[key] = ScrapeTarget(observed.endpoints, spec.slots, spec.policy.latency_objective > 0.0)
        if changed or scaler.desired(key) == UNDECIDED:
            self._decide(key, now)

    def _count_replicas(self, key: Key, observed: ObservedRevision, replicas: int) -> None:
        """Pass the number of replicas to the MultiScaler, without the one that a restart has beyond the desired ones.

        Decisions keep the present replicas while there is little data, and would keep that one too.
        """
        scaler = self._deps.scaler
        if observed.restarting and (desired := scaler.desired(key)) > 0:
            replicas = min(replicas, desired)
        scaler.set_replicas(key, replicas, observed.ready, self._deps.clock.monotonic())

    def _decide(self, key: Key, now: float) -> None:
        for change in self._deps.scaler.decide([key], now):
            self._deps.decisions.add_decision(change)

    async def _scale_up(self, key: Key, observed: ObservedRevision, deployment: Object) -> float | None:
        """Add replicas: warm-pool members at once, then replicas of the Deployment; surplus ones are removed later.

        When the pool provides all of them, further writes are delayed: returns the seconds, or None. A revision that
        was never ready must first start a replica of its own, because a member is ready before it has loaded the model.
        """
        deps, wanted = self._deps, self._wanted(key, observed)
        missing = wanted - max(observed.current, self._pending.replicas(key))
        if missing > 0:
            deps.starts.mark_requested(key)
            # counted from here on: a member may empty the queue before the Deployment is scaled
            self._count_replicas(key, observed, wanted)
        claimed = 0
        if missing > 0 and wanted > observed.ready and is_initialized(observed.pod_autoscaler):
            held_to = annotations_of(observed.pod_autoscaler).get(HELD_ANNOTATION, "")
            claimed = await deps.warm.begin(key, deployment, wanted, held_to)
        if wanted <= observed.current:
            self._pending.forget(key)
            return None
        now = deps.clock.monotonic()
        if missing > 0:
            deps.warm.record_starts(key, deployment, missing, claimed)
            self._pending.record(key, wanted, now, served=claimed >= missing)
        if (left := self._pending.delay(key, now)) > 0:
            return left
        await self._scale(observed, wanted)
        return None

    def _wanted(self, key: Key, observed: ObservedRevision) -> int:
        """Return the desired replicas, and one more while a restart replaces them and has GPUs for it."""
        desired, more = self._deps.scaler.desired(key), self._surge(key, observed)
        return desired + (more if self._deps.gpus is None else self._deps.gpus.surge(key, desired, more))

    def _surge(self, key: Key, observed: ObservedRevision) -> int:
        return observed.surge(self._deps.scaler.desired(key)) if is_initialized(observed.pod_autoscaler) else 0

    async def _scale(self, observed: ObservedRevision, replicas: int) -> None:
        """Scale exactly the observed Deployment, not a new one of the same name. Raises the cluster's errors."""
        if observed.deployment is None or observed.current == replicas:
            return
        name, namespace = name_of(observed.deployment), namespace_of(observed.deployment)
        log.info("scaling %s/%s from %d to %d", namespace, name, observed.current, replicas)
        uid = uid_of(observed.deployment)
        await self._deps.cluster.scale(DEPLOYMENT, name, namespace, replicas, manager=MANAGER, uid=uid)

    async def _serverless_service(self, key: Key, observed: ObservedRevision, spec: RevisionSpec) -> Object:
        """Create or update the ServerlessService, and return it."""
        activators = wanted_activators(observed.ready, spec.slots, spec.policy.target_burst_capacity)
        path = _Path(observed.ready, spec.slots, spec.policy.target_burst_capacity)
        work = self._deps.scaler.current_work(key, self._deps.clock.monotonic()) if path.burst > 0 else 0.0
        path = self._paths[key] = replace(path, mode=self._wanted_mode(key, path, work))
        wanted = make_serverless_service(observed.pod_autoscaler, path.mode, activators)
        present, cluster = observed.serverless_service, self._deps.cluster
        if present is None:
            return await cluster.create(SERVERLESS_SERVICE, wanted, manager=MANAGER)
        if patch := changed_fields(present, wanted):
            return await cluster.patch(SERVERLESS_SERVICE, key.name, patch, key.namespace, manager=MANAGER)
        return present

    def _wanted_mode(self, key: Key, path: _Path, work: float) -> ServiceMode:
        inputs = ModeInputs(
            desired=self._deps.scaler.desired(key),
            ready=path.ready,
            queued=self._deps.activator.load(key).queued,
            work=work,
            slots=path.slots,
            burst_capacity=path.burst,
        )
        return wanted_mode(inputs)

    async def _scale_down(self, key: Key, observed: ObservedRevision, service: Object) -> float | None:
        """Remove replicas; the last one only when `ScaleToZero` allows it."""
        deps = self._deps
        desired = deps.scaler.desired(key)
        if desired > 0 or observed.current == 0:
            deps.scale_to_zero.forget(key)
            wanted = self._wanted(key, observed)
            if wanted < observed.current:
                await self._scale_down_order.prepare(observed, wanted, deps.collector.last(key))
                await self._scale(observed, wanted)
            return None
        reachable = is_reachable(observed.pod_autoscaler)
        reclaimed = deps.gpus is not None and deps.gpus.is_reclaimed(key)
        if reclaimed and not observed.endpoints:
            await self._scale(observed, 0)  # no replica has requests
            return None
        check = await deps.scale_to_zero.check(
            service, key, observed.endpoints, reachable=reachable, reclaimed=reclaimed
        )
        if check.verdict is ZeroVerdict.BUSY:
            now = deps.clock.monotonic()
            deps.scaler.touch(key, now)
            self._decide(key, now)
            return 0.0
        if check.verdict is ZeroVerdict.GO and deps.scaler.desired(key) == 0:  # a tick may have changed it meanwhile
            await self._scale(observed, 0)
        return check.after

    def _waits_for_gpus(self, key: Key, observed: ObservedRevision) -> str:
        """Return why the Revision waits for GPUs; empty if it does not."""
        if self._deps.gpus is None:
            return ""
        return self._deps.gpus.waiting(key, filter(is_active, observed.pods))

    async def _report(self, key: Key, observed: ObservedRevision, service: Object, spec: RevisionSpec) -> None:
        """Update the status if it differs. Raises Conflict when the PodAutoscaler changed meanwhile."""
        pod_autoscaler, deps = observed.pod_autoscaler, self._deps
        threshold = active_threshold(pod_autoscaler, spec.least)
        desired = deps.scaler.desired(key)
        # a rollout measures load by replicas, to which that of a restart does not belong
        ready = min(observed.ready, desired) if observed.restarting else observed.ready
        scale = Scale(desired, ready, threshold)
        now = deps.clock.now()
        progress = deps.progress.follow(key, pod_autoscaler, observed.pods)
        failure = find_start_failure(observed.pods, now) or deps.digests.failure(key)
        if (waits := self._waits_for_gpus(key, observed)) and failure.partition(":")[0] in ("", UNSCHEDULABLE):
            failure = f"{WAITING_FOR_GPU}: {waits}"
        unavailable = deps.availability.message(key, may_be_zero=spec.may_be_zero)
        adapters = deps.adapters.state(key, pod_autoscaler)
        status = make_status(pod_autoscaler, service, scale, now, failure, progress, unavailable, adapters)
        if is_reported(pod_autoscaler, status):
            return
        patch = {"metadata": {"resourceVersion": version_of(pod_autoscaler)}, "status": status}
        await deps.cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
