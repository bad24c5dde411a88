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
from autoscaler.reconciler.spec import least_replicas, make_spec, seconds_to_expiry, slots_of
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
    key_of,
    name_of,
    namespace_of,
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

    def targets(self, keys: Iterable[Key]) -> dict[Key, Target]:
        """The ready replicas of these revisions, as of their last pass; those without any are left out."""
        found = ((key, self._targets.get(key)) for key in keys)
        return {key: target for key, target in found if target is not None and target.endpoints}

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look, or None."""
        pod_autoscaler = self._parts.view.pod_autoscaler(key)
        if pod_autoscaler is None or is_deleting(pod_autoscaler) or not is_ours(pod_autoscaler):
            self._forget(key)
            return None
        observed = self._parts.view.observe(pod_autoscaler)
        policy = await self._policy(key, pod_autoscaler)
        self._take_in(key, observed, policy)
        desired = self._parts.fleet.desired(key)
        if desired > observed.current:
            await self._scale(observed, desired)
        service = await self._serverless_service(key, observed, policy, desired)
        looks = [await self._scale_down(key, observed, service, desired)]
        await self._report(key, observed, service)
        looks.append(await self._parts.decisions.write(pod_autoscaler))
        looks.append(seconds_to_expiry(pod_autoscaler, self._parts.settings.zero, self._parts.clock.now()))
        return min((look for look in looks if look is not None), default=None)

    def _forget(self, key: Key) -> None:
        parts = self._parts
        for memory in (parts.collector, parts.scale_to_zero, parts.decisions):
            memory.forget(key)
        parts.fleet.remove(key)
        for table in (self._policies, self._targets, self._complaints):
            table.pop(key, None)  # type: ignore[attr-defined]

    async def _policy(self, key: Key, pod_autoscaler: Object) -> Policy:
        """What it asks for; when that cannot be followed the last policy that could, and an Event that says so."""
        try:
            policy = Policy.from_annotations(annotations_of(pod_autoscaler))
        except InvalidPolicy as error:
            await self._complain(key, pod_autoscaler, str(error))
            return self._policies.get(key, Policy())
        self._complaints.pop(key, None)
        self._policies[key] = policy
        return policy

    async def _complain(self, key: Key, pod_autoscaler: Object, message: str) -> None:
        if self._complaints.get(key) == message:
            return
        log.warning("%s: %s (annotation %s)", key, message, POLICY_ANNOTATION)
        await self._parts.recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", "InvalidPolicy", message)
        self._complaints[key] = message

    def _take_in(self, key: Key, observed: Observed, policy: Policy) -> None:
        """Tell the fleet what is wished and seen; decide when the wishes are new."""
        parts = self._parts
        now = parts.clock.monotonic()
        spec = make_spec(observed.pod_autoscaler, policy, parts.settings.zero, parts.clock.now())
        changed = parts.fleet.set_spec(key, spec)
        parts.fleet.set_replicas(key, observed.current, observed.ready, now)
        self._targets[key] = Target(observed.endpoints, slots_of(observed.pod_autoscaler, policy))
        if observed.deployment is not None and (changed or parts.fleet.desired(key) == UNDECIDED):
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

    async def _serverless_service(self, key: Key, observed: Observed, policy: Policy, desired: int) -> Object | None:
        """The ServerlessService as it should be, created or changed where it is not; it needs the Deployment first."""
        if observed.deployment is None:
            return observed.serverless_service
        wanted = make_serverless_service(observed.pod_autoscaler, self._mode(key, observed, policy, desired))
        present, cluster = observed.serverless_service, self._parts.cluster
        if present is None:
            return await cluster.create(SERVERLESS_SERVICE, wanted, manager=MANAGER)
        if patch := changed_fields(present, wanted):
            return await cluster.patch(SERVERLESS_SERVICE, key.name, patch, key.namespace, manager=MANAGER)
        return present

    def _mode(self, key: Key, observed: Observed, policy: Policy, desired: int) -> Mode:
        work = self._parts.fleet.work(key, self._parts.clock.monotonic()) if policy.target_burst_capacity > 0 else 0.0
        return wanted_mode(
            Traffic(
                desired=desired,
                ready=observed.ready,
                queued=self._parts.activator.load(key).queued,
                work=work,
                slots=slots_of(observed.pod_autoscaler, policy),
                burst_capacity=policy.target_burst_capacity,
            )
        )

    async def _scale_down(self, key: Key, observed: Observed, service: Object | None, desired: int) -> float | None:
        """Lower the replicas; the last one goes only where the path to zero says so."""
        parts = self._parts
        if desired != 0 or observed.current == 0:
            parts.scale_to_zero.forget(key)
            if UNDECIDED < desired < observed.current:
                await self._scale(observed, desired)
            return None
        look = await parts.scale_to_zero.look(service, key, observed.endpoints)
        if look.verdict is Verdict.GO:
            await self._scale(observed, 0)
        elif look.verdict is Verdict.BUSY:
            return self._cancel(key)
        return look.after

    def _cancel(self, key: Key) -> float:
        """There is work after all: decide anew, and pass again at once."""
        now = self._parts.clock.monotonic()
        self._parts.fleet.touch(key, now)
        self._decide(key, now)
        return 0.0

    async def _report(self, key: Key, observed: Observed, service: Object | None) -> None:
        """Write the status where it differs. Raises Conflict when the PodAutoscaler changed meanwhile."""
        pod_autoscaler, parts = observed.pod_autoscaler, self._parts
        desired = parts.fleet.desired(key)
        least = least_replicas(make_spec(pod_autoscaler, self._policies.get(key, Policy()), parts.settings.zero, now))
        scale = Scale(desired, observed.ready, active_threshold(pod_autoscaler, least))
        status = make_status(pod_autoscaler, service, scale, parts.clock.now())
        if status == (pod_autoscaler.get("status") or {}):
            return
        patch = {"metadata": {"resourceVersion": version_of(pod_autoscaler)}, "status": status}
        await parts.cluster.patch(
            POD_AUTOSCALER, key.name, patch, key.namespace, manager=MANAGER, subresource="status"
        )
