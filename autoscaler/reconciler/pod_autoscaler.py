"""One pass over one PodAutoscaler of our class: take in what is wished and seen, scale, set traffic, report.

What to scale to is the fleet's word (decided at ticks, at wakes from zero, and here when wishes change); this module
carries it out. Raising replicas comes first in the pass, since requests wait for it; reports come last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.apis import POLICY_ANNOTATION, InvalidPolicy, Policy, is_ours
from autoscaler.config import Settings
from autoscaler.metrics.collector import Collector, Target
from autoscaler.metrics.source import ActivatorLoad
from autoscaler.reconciler.decision_log import DecisionLog
from autoscaler.reconciler.observed import Observed, View
from autoscaler.reconciler.scale_to_zero import ScaleToZero, Verdict
from autoscaler.reconciler.serverless_service import (
    Mode,
    Traffic,
    changed_fields,
    make_serverless_service,
    wanted_mode,
)
from autoscaler.reconciler.spec import Wishes, make_wishes, seconds_to_expiry
from autoscaler.reconciler.status import Scale, active_threshold, make_status
from autoscaler.scaling.fleet import UNDECIDED, Fleet
from clusters.api import Cluster
from clusters.clock import Clock
from clusters.objects import (
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
from clusters.recorder import Recorder

log = logging.getLogger(__name__)

MANAGER = "knodel-autoscaler"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler works with; the composition root of this package makes them."""

    cluster: Cluster
    view: View
    fleet: Fleet
    collector: Collector
    activator: ActivatorLoad
    scale_to_zero: ScaleToZero
    decisions: DecisionLog
    recorder: Recorder
    clock: Clock
    settings: Settings


class PodAutoscalerReconciler:
    """Passes over PodAutoscalers; `targets` tells a tick which replicas to ask."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._policies: dict[Key, Policy] = {}
        self._targets: dict[Key, Target] = {}
        self._complaints: dict[Key, str] = {}
        self._uids: dict[Key, str] = {}

    def targets(self, keys: Iterable[Key]) -> dict[Key, Target]:
        """The ready replicas of these revisions, as of their last pass; those without any are left out."""
        found = ((key, self._targets.get(key)) for key in keys)
        return {key: target for key, target in found if target is not None and target.endpoints}

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look, or None."""
        parts = self._parts
        pod_autoscaler = parts.view.pod_autoscaler(key)
        if pod_autoscaler is None or is_deleting(pod_autoscaler) or not is_ours(pod_autoscaler):
            self._forget(key)
            return None
        if self._uids.setdefault(key, uid_of(pod_autoscaler)) != uid_of(pod_autoscaler):
            self._forget(key)  # a namesake: nothing that is known is about it
            self._uids[key] = uid_of(pod_autoscaler)
        observed = parts.view.observe(pod_autoscaler)
        if observed.deployment is None:
            parts.fleet.remove(key)
            return None  # its arrival wakes this key
        wishes = await self._wishes(key, pod_autoscaler)
        self._take_in(key, observed, wishes)
        if parts.fleet.desired(key) > observed.current:
            await self._scale(observed, parts.fleet.desired(key))
        service = await self._serverless_service(key, observed, wishes)
        looks = [await self._scale_down(key, observed, service)]
        await self._report(key, observed, service, wishes)
        looks.append(await parts.decisions.write(pod_autoscaler))
        looks.append(seconds_to_expiry(pod_autoscaler, parts.settings.zero, parts.clock.now()))
        return min((look for look in looks if look is not None), default=None)

    def _forget(self, key: Key) -> None:
        parts = self._parts
        for memory in (parts.collector, parts.scale_to_zero, parts.decisions):
            memory.forget(key)
        parts.fleet.remove(key)
        self._policies.pop(key, None)
        self._targets.pop(key, None)
        self._complaints.pop(key, None)
        self._uids.pop(key, None)

    async def _wishes(self, key: Key, pod_autoscaler: Object) -> Wishes:
        """What it asks for; when that cannot be followed the last policy that could, and an Event that says so."""
        try:
            self._policies[key] = Policy.from_annotations(annotations_of(pod_autoscaler))
            self._complaints.pop(key, None)
        except InvalidPolicy as error:
            await self._complain(key, pod_autoscaler, str(error))
        policy = self._policies.get(key, Policy())
        return make_wishes(pod_autoscaler, policy, self._parts.settings.zero, self._parts.clock.now())

    async def _complain(self, key: Key, pod_autoscaler: Object, message: str) -> None:
        if self._complaints.get(key) == message:
            return
        log.warning("%s: %s (annotation %s)", key, message, POLICY_ANNOTATION)
        await self._parts.recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", "InvalidPolicy", message)
        self._complaints[key] = message

    def _take_in(self, key: Key, observed: Observed, wishes: Wishes) -> None:
        """Tell the fleet what is wished and seen; decide when the wishes are new."""
        fleet, now = self._parts.fleet, self._parts.clock.monotonic()
        changed = fleet.set_spec(key, wishes.spec)
        fleet.set_replicas(key, observed.current, observed.ready, now)
        self._targets[key] = Target(observed.endpoints, wishes.slots)
        if changed or fleet.desired(key) == UNDECIDED:
            self._decide(key, now)

    def _decide(self, key: Key, now: float) -> None:
        for change in self._parts.fleet.decide([key], now):
            self._parts.decisions.add(change)

    async def _scale(self, observed: Observed, replicas: int) -> None:
        """Scale the Deployment. Raises what the cluster raises."""
        if observed.deployment is None or observed.current == replicas:
            return
        name, namespace = name_of(observed.deployment), namespace_of(observed.deployment)
        log.info("scaling %s/%s from %d to %d", namespace, name, observed.current, replicas)
        await self._parts.cluster.scale(DEPLOYMENT, name, namespace, replicas, manager=MANAGER)

    async def _serverless_service(self, key: Key, observed: Observed, wishes: Wishes) -> Object:
        """The ServerlessService as it should be, created or changed where it is not."""
        wanted = make_serverless_service(observed.pod_autoscaler, self._mode(key, observed, wishes))
        present, cluster = observed.serverless_service, self._parts.cluster
        if present is None:
            return await cluster.create(SERVERLESS_SERVICE, wanted, manager=MANAGER)
        if patch := changed_fields(present, wanted):
            return await cluster.patch(SERVERLESS_SERVICE, key.name, patch, key.namespace, manager=MANAGER)
        return present

    def _mode(self, key: Key, observed: Observed, wishes: Wishes) -> Mode:
        fleet, burst = self._parts.fleet, wishes.policy.target_burst_capacity
        traffic = Traffic(
            desired=fleet.desired(key),
            ready=observed.ready,
            queued=self._parts.activator.load(key).queued,
            work=fleet.work(key, self._parts.clock.monotonic()) if burst > 0 else 0.0,
            slots=wishes.slots,
            burst_capacity=burst,
        )
        return wanted_mode(traffic)

    async def _scale_down(self, key: Key, observed: Observed, service: Object) -> float | None:
        """Lower the replicas; the last one goes only where the path to zero says so."""
        parts = self._parts
        desired = parts.fleet.desired(key)
        if desired > 0 or observed.current == 0:
            parts.scale_to_zero.forget(key)
            if desired < observed.current:
                await self._scale(observed, desired)
            return None
        look = await parts.scale_to_zero.look(service, key, observed.endpoints)
        if look.verdict is Verdict.BUSY:
            return self._cancel(key)
        if look.verdict is Verdict.GO and parts.fleet.desired(key) == 0:  # a tick may have decided meanwhile
            await self._scale(observed, 0)
        return look.after

    def _cancel(self, key: Key) -> float:
        """There is work after all: decide anew, and pass again at once."""
        now = self._parts.clock.monotonic()
        self._parts.fleet.touch(key, now)
        self._decide(key, now)
        return 0.0

    async def _report(self, key: Key, observed: Observed, service: Object, wishes: Wishes) -> None:
        """Write the status where it differs. Raises Conflict when the PodAutoscaler changed meanwhile."""
        pod_autoscaler, parts = observed.pod_autoscaler, self._parts
        threshold = active_threshold(pod_autoscaler, wishes.least)
        scale = Scale(parts.fleet.desired(key), observed.ready, threshold)
        status = make_status(pod_autoscaler, service, scale, parts.clock.now())
        if status == pod_autoscaler.get("status"):
            return
        patch = {"metadata": {"resourceVersion": version_of(pod_autoscaler)}, "status": status}
        await parts.cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
