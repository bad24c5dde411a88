"""One pass over one PodAutoscaler of our class: take in what is wished and seen, scale, set traffic, report.

What to scale to is the fleet's word (decided at ticks, at wakes from zero, and here when wishes change); this module
carries it out. Raising replicas comes first in the pass, since requests wait for it; reports come last.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from autoscaler.metrics.collector import Target
from autoscaler.reconciler.asked import Asked
from autoscaler.reconciler.idle_first import IdleFirst
from autoscaler.reconciler.observed import Observed
from autoscaler.reconciler.parts import Parts
from autoscaler.reconciler.scale_to_zero import Verdict
from autoscaler.reconciler.serverless_service import (
    Mode,
    Traffic,
    changed_fields,
    make_serverless_service,
    wanted_activators,
    wanted_mode,
)
from autoscaler.reconciler.spec import Wishes, is_reachable, make_wishes, seconds_to_expiry, seconds_to_schedule
from autoscaler.reconciler.status import Scale, active_threshold, is_initialized, is_reported, make_status
from autoscaler.reconciler.trouble import find_trouble, seconds_to_trouble
from autoscaler.scaling.measured import UNDECIDED
from autoscaler.types import AUTO, HELD_ANNOTATION, POLICY_ANNOTATION, InvalidPolicy, Policy, is_ours
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
    """What the way of a revision's requests depended on in its last pass, and which one it was."""

    ready: int
    slots: float
    burst: float
    mode: Mode = Mode.PROXY


class PodAutoscalerReconciler:
    """Passes over PodAutoscalers; `targets` tells a tick which replicas to ask."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._policies: dict[Key, Policy] = {}
        self._targets: dict[Key, Target] = {}
        self._paths: dict[Key, _Path] = {}
        self._complaints: dict[Key, str] = {}
        self._uids: dict[Key, str] = {}
        self._asked = Asked()
        self._idle_first = IdleFirst(parts.cluster, MANAGER)

    def targets(self, keys: Iterable[Key]) -> dict[Key, Target]:
        """The ready replicas of these revisions, as of their last pass; those without any are left out."""
        found = ((key, self._targets.get(key)) for key in keys)
        return {key: target for key, target in found if target is not None and target.endpoints}

    def misplaced(self, keys: Iterable[Key]) -> list[Key]:
        """Those in whose path the activator is to come, or to go, by the work of now, as of their last pass."""
        found = ((key, self._paths.get(key)) for key in keys if key in self._parts.fleet)
        paths = {key: path for key, path in found if path is not None and path.burst > 0}
        works = self._parts.fleet.works(list(paths), self._parts.clock.monotonic())
        by_work = zip(paths.items(), works, strict=True)
        return [key for (key, path), work in by_work if self._wanted_mode(key, path, work) is not path.mode]

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
        parts.ledger.see(pod_autoscaler, observed.deployment, observed.pods)
        now = parts.clock.now()  # of the whole pass: what was not due at its beginning is looked at again, however near
        wishes = await self._wishes(key, pod_autoscaler, now)
        self._take_in(key, observed, wishes)
        if (wait := await self._raise(key, observed, observed.deployment)) is not None:
            return wait
        looks = [await parts.warm.finish(key, observed.deployment)]  # first: what follows may be refused
        looks.append(await parts.digests.act(pod_autoscaler, observed.pods))
        service = await self._serverless_service(key, observed, wishes)
        looks.append(await self._scale_down(key, observed, service))
        await self._report(key, observed, service, wishes)
        await parts.silences.tell(key, pod_autoscaler, may_be_zero=wishes.may_be_zero)
        looks.append(await parts.notes.write(pod_autoscaler))
        looks.append(await parts.ledger.write(pod_autoscaler))
        looks += [seconds_to_expiry(pod_autoscaler, parts.settings.zero, now), seconds_to_trouble(observed.pods, now)]
        looks.append(seconds_to_schedule(wishes, now))
        return min((look for look in looks if look is not None), default=None)

    def _forget(self, key: Key) -> None:
        parts = self._parts
        told = (parts.collector, parts.scale_to_zero, parts.notes, parts.progress, parts.starts, parts.warm)
        for memory in (self._asked, parts.silences, parts.ledger, parts.digests, *told):
            memory.forget(key)
        parts.fleet.remove(key)
        known: tuple[dict[Key, Any], ...] = (self._policies, self._targets, self._paths, self._complaints, self._uids)
        for one in known:
            one.pop(key, None)

    async def _wishes(self, key: Key, pod_autoscaler: Object, now: datetime) -> Wishes:
        """What it asks for; when that cannot be followed the last policy that could, and an Event that says so."""
        try:
            self._policies[key] = Policy.from_annotations(annotations_of(pod_autoscaler))
            self._complaints.pop(key, None)
        except InvalidPolicy as error:
            await self._complain(key, pod_autoscaler, str(error))
        policy, zero = self._policies.get(key, Policy()), self._parts.settings.zero
        if not self._parts.hears():
            zero = replace(zero, enabled=False)
        return make_wishes(pod_autoscaler, policy, zero, now)

    async def _complain(self, key: Key, pod_autoscaler: Object, message: str) -> None:
        if self._complaints.get(key) == message:
            return
        log.warning("%s: %s (annotation %s)", key, message, POLICY_ANNOTATION)
        await self._parts.recorder.event(POD_AUTOSCALER, pod_autoscaler, "Warning", "InvalidPolicy", message)
        self._complaints[key] = message

    def _take_in(self, key: Key, observed: Observed, wishes: Wishes) -> None:
        """Tell the fleet what is wished and seen; decide when the wishes are new."""
        fleet, now = self._parts.fleet, self._parts.clock.monotonic()
        new = key not in fleet
        changed = fleet.set_spec(key, self._with_hold(key, observed, wishes))
        if new:
            self._parts.starts.remember(key, observed.pod_autoscaler)
        asked = max(observed.current, self._asked.replicas(key))
        fleet.set_replicas(key, asked, observed.ready, now)
        self._targets[key] = Target(observed.endpoints, wishes.slots, wishes.policy.latency_objective > 0.0)
        if changed or fleet.desired(key) == UNDECIDED:
            self._decide(key, now)

    def _with_hold(self, key: Key, observed: Observed, wishes: Wishes) -> Mapping[str, float | int | bool]:
        """The columns of its row; where a warm pool stands behind it, the plan says when its last replica goes."""
        warm, asked = self._parts.warm, wishes.policy.scale_to_zero_after
        if observed.deployment is None or not wishes.may_be_zero:
            warm.unfollow(key)
            return wishes.spec
        hold = warm.follow(key, observed.deployment, None if asked == AUTO else asked)
        return wishes.spec if hold is None else {**wishes.spec, "scale_to_zero_after": hold.seconds}

    def _decide(self, key: Key, now: float) -> None:
        for change in self._parts.fleet.decide([key], now):
            self._parts.notes.add_decision(change)

    async def _raise(self, key: Key, observed: Observed, deployment: Object) -> float | None:
        """More replicas: what the warm pool has at once, then the Deployment's own, which go again where both come.

        Where the pool had all, all else has a moment's time: returns the seconds until then, or None. A revision that
        was never ready has to prove itself by a start of its own: a member is ready before it has loaded the model.
        """
        parts, wanted = self._parts, self._parts.fleet.desired(key)
        missing = wanted - max(observed.current, self._asked.replicas(key))
        if missing > 0:
            parts.starts.asked(key)
            # asked for from here on: a member may have answered all that waited before the Deployment is scaled
            parts.fleet.set_replicas(key, wanted, observed.ready, parts.clock.monotonic())
        claimed = 0
        if missing > 0 and wanted > observed.ready and is_initialized(observed.pod_autoscaler):
            held_to = annotations_of(observed.pod_autoscaler).get(HELD_ANNOTATION, "")
            claimed = await parts.warm.begin(key, deployment, wanted, held_to)
        if wanted <= observed.current:
            self._asked.forget(key)
            return None
        now = parts.clock.monotonic()
        if missing > 0:
            parts.warm.note(key, deployment, missing, claimed)
            self._asked.ask(key, wanted, now, served=claimed >= missing)
        if (left := self._asked.left(key, now)) > 0:
            return left
        await self._scale(observed, wanted)
        return None

    async def _scale(self, observed: Observed, replicas: int) -> None:
        """Scale the Deployment that was observed, and none that has its name by now. Raises what the cluster raises."""
        if observed.deployment is None or observed.current == replicas:
            return
        name, namespace = name_of(observed.deployment), namespace_of(observed.deployment)
        log.info("scaling %s/%s from %d to %d", namespace, name, observed.current, replicas)
        uid = uid_of(observed.deployment)
        await self._parts.cluster.scale(DEPLOYMENT, name, namespace, replicas, manager=MANAGER, uid=uid)

    async def _serverless_service(self, key: Key, observed: Observed, wishes: Wishes) -> Object:
        """The ServerlessService as it should be, created or changed where it is not."""
        activators = wanted_activators(observed.ready, wishes.slots, wishes.policy.target_burst_capacity)
        wanted = make_serverless_service(observed.pod_autoscaler, self._mode(key, observed, wishes), activators)
        present, cluster = observed.serverless_service, self._parts.cluster
        if present is None:
            return await cluster.create(SERVERLESS_SERVICE, wanted, manager=MANAGER)
        if patch := changed_fields(present, wanted):
            return await cluster.patch(SERVERLESS_SERVICE, key.name, patch, key.namespace, manager=MANAGER)
        return present

    def _mode(self, key: Key, observed: Observed, wishes: Wishes) -> Mode:
        path = _Path(observed.ready, wishes.slots, wishes.policy.target_burst_capacity)
        work = self._parts.fleet.work(key, self._parts.clock.monotonic()) if path.burst > 0 else 0.0
        path = replace(path, mode=self._wanted_mode(key, path, work))
        self._paths[key] = path
        return path.mode

    def _wanted_mode(self, key: Key, path: _Path, work: float) -> Mode:
        traffic = Traffic(
            desired=self._parts.fleet.desired(key),
            ready=path.ready,
            queued=self._parts.activator.load(key).queued,
            work=work,
            slots=path.slots,
            burst_capacity=path.burst,
        )
        return wanted_mode(traffic)

    async def _scale_down(self, key: Key, observed: Observed, service: Object) -> float | None:
        """Lower the replicas; the last one goes only where the path to zero says so."""
        parts = self._parts
        desired = parts.fleet.desired(key)
        if desired > 0 or observed.current == 0:
            parts.scale_to_zero.forget(key)
            if desired < observed.current:
                await self._idle_first.prepare(observed, desired, parts.collector.last(key))
                await self._scale(observed, desired)
            return None
        reachable = is_reachable(observed.pod_autoscaler)
        look = await parts.scale_to_zero.look(service, key, observed.endpoints, reachable=reachable)
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
        now = parts.clock.now()
        progress = parts.progress.follow(key, pod_autoscaler, observed.pods)
        trouble = find_trouble(observed.pods, now) or parts.digests.trouble(key)
        silence = parts.silences.message(key, may_be_zero=wishes.may_be_zero)
        status = make_status(pod_autoscaler, service, scale, now, trouble, progress, silence)
        if is_reported(pod_autoscaler, status):
            return
        patch = {"metadata": {"resourceVersion": version_of(pod_autoscaler)}, "status": status}
        await parts.cluster.patch(POD_AUTOSCALER, key.name, patch, key.namespace, manager=MANAGER, subresource="status")
