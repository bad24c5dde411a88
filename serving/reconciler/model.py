"""Reconcile one Model: observe, plan, apply, judge and advance the rollout, write the status.

A pass reads from top to bottom in `ModelReconciler._pass`. Each pass does what is possible now. A change in the cluster
that results from it starts the next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Invalid, KnodelError, NotFound
from clusters.base.objects import (
    MODEL,
    NAMESPACE,
    Key,
    Object,
    condition_of,
    generation_of,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)
from clusters.base.redact import one_line
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.states import GroupStates
from serving.makers.knative_flags import flags_needed
from serving.reconciler import preconditions
from serving.reconciler.apply import FIELD_MANAGER, apply_plan
from serving.reconciler.backoff import RefusalBackoff, StatusRateLimiter
from serving.reconciler.clocks import RolloutClocks
from serving.reconciler.events import events_of_change
from serving.reconciler.flags import Flags
from serving.reconciler.group_tokens import GroupTokens
from serving.reconciler.observe import observe
from serving.reconciler.plan import make_plan
from serving.reconciler.rollouts import JudgeConcurrency, RolloutJudge, advance, seconds_until_pass, with_valid_times
from serving.reconciler.status import make_broken_status, make_invalid_status, make_status
from serving.types.code import code_format
from serving.types.model import Model, sizes_of
from serving.types.settings.settings import Settings
from serving.types.validation import read_model

log = logging.getLogger(__name__)

LONGEST_FAULT = 200
"""Characters of an unexpected error that a condition repeats."""
FAILS = "the platform failed to reconcile this model ("


class ModelReconciler:
    """Brings Knative's objects to the state that Models declare, and writes the result to the Models' status."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        settings: Settings,
        clock: Clock,
        recorder: Recorder,
        flags: Flags,
        judge: RolloutJudge,
        groups: GroupStates,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._flags = flags
        self._groups = groups
        self._tokens = GroupTokens(cluster)
        self._judges = JudgeConcurrency(judge)
        self._clocks = RolloutClocks(clock, elapsed or clock.monotonic)
        self._limiter = StatusRateLimiter(clock)
        self._own_writes = informers[MODEL].own_writes
        self._backoff = RefusalBackoff()

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass over the Model. Return the seconds until the next one is due, or None.

        An error that does not come from the cluster is a bug of the platform: it is reported in the Model's conditions
        and raised again, so that the controller retries.
        """
        try:
            return await self._pass(key)
        except KnodelError:
            raise
        except Exception as error:
            await self._report_failure(key, error)
            raise

    async def _pass(self, key: Key) -> float | None:
        obj = self._informers[MODEL].get(key.name, key.namespace)
        if obj is None or is_deleting(obj):
            self._limiter.forget(key)
            self._backoff.forget(key)
            self._judges.forget(key)
            self._clocks.forget(key)
            self._tokens.forget(key)
            return None
        now = self._clocks.now(obj, stale=self._own_writes.is_outdated(key, version_of(obj)))
        try:
            model = read_model(obj)
        except Invalid as error:
            message = "; ".join(str(cause) for cause in error.causes)
            return await self._write(obj, make_invalid_status(obj, message, now))
        world = observe(self._informers, model)
        plan = make_plan(model, world, self._settings, await self._blocked_reason(model))
        plan = with_valid_times(now, plan, self._clocks.found_at(key), model.spec.rollout)
        groups, refusal = self._groups.state(model), None
        if plan.blocked is None:
            refusal = await self._tokens.ensure(model, complete=groups is not None and groups.status == "True")
        result = await apply_plan(self._cluster, self._informers, plan, world)
        result = result if refusal is None else replace(result, refusal=refusal)
        judged = await self._judges.judge(model, plan.situation, now)
        progress = advance(model, result.world, plan, judged, now)
        status = make_status(model, result, plan, progress, now, groups)
        later = _soonest(await self._write(obj, status), seconds_until_pass(model, status, now))
        if not plan.foreign and plan.blocked is None and result.refusal is None:
            self._backoff.forget(key)
            return later
        return _soonest(later, self._backoff.next_delay(key))

    async def _blocked_reason(self, model: Model) -> preconditions.BlockedReason | None:
        namespace = self._informers[NAMESPACE].get(model.namespace)
        return (
            preconditions.collision(self._informers[MODEL], model.object)
            or preconditions.forbidden_code(code_format(model.object["spec"]), model.namespace, namespace)
            or preconditions.unknown_runtime(self._settings.runtimes, model.spec.runtime)
            or preconditions.missing_prometheus(self._settings.rollout.prometheus_url, model)
            or preconditions.part_of_gpu(sizes_of(model.spec), supported=self._flags.parts_of_gpus)
            or preconditions.disabled_flags(await self._flags.missing(flags_needed(model, self._settings.server)))
        )

    async def _report_failure(self, key: Key, error: Exception) -> None:
        """Write the error to the Model's conditions. When that fails too, both errors are in the log."""
        obj = self._informers[MODEL].get(key.name, key.namespace)
        if obj is None:
            return
        try:
            await self._write(obj, make_broken_status(obj, _fault(obj, error), self._clock.now()))
        except Exception as second:
            log.warning("cannot report on model %s why its reconciliation fails: %s", key, second)

    async def _write(self, obj: Object, status: Object) -> float | None:
        """Write the status if it changed, and record Events for the change.

        Returns the seconds until the next attempt when the write is rate-limited, else None.
        """
        former, key = obj.get("status") or {}, key_of(obj)
        if status == former or self._own_writes.is_outdated(key, version_of(obj)):
            return None
        wait = self._limiter.delay(key, former, status)
        if wait > 0:
            return wait
        metadata = {  # the uid and version of the object that the status was made from
            "name": name_of(obj),
            "namespace": namespace_of(obj),
            "uid": uid_of(obj),
            "resourceVersion": version_of(obj),
        }
        whole = {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "status": status}
        try:
            answer = await self._cluster.apply(MODEL, whole, manager=FIELD_MANAGER, force=True, subresource="status")
        except NotFound:
            return None  # deleted in the meantime
        self._own_writes.record(answer)
        if status.get("rollout") != former.get("rollout"):
            self._clocks.record_write(key)
        for event in events_of_change(obj, {**obj, "status": status}):
            await self._recorder.event(MODEL, obj, event.type, event.reason, event.message)
        return None


def _fault(obj: Object, error: Exception) -> str:
    """Return the message of the condition; the present one while the error is of the same type.

    A text with an address or a time differs in each pass. Each pass would then write, and its write would start the
    next pass at once.
    """
    name, ready = type(error).__name__, condition_of(obj, "Ready") or {}
    if ready.get("reason") == "ReconcileFailed" and obj["status"].get("observedGeneration") == generation_of(obj):
        former = str(ready.get("message", ""))
        if former.startswith((f"{FAILS}{name}:", f"{FAILS}{name})")):
            return former
    text = one_line(str(error), LONGEST_FAULT)
    return f"{FAILS}{f'{name}: {text}' if text else name}): see the platform's log; running replicas continue to serve"


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
