"""One pass over one Model: look, plan, write, say how it is. Reads top to bottom."""

from __future__ import annotations

import logging
from collections.abc import Callable

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
from serving.makers.knative_flags import flags_needed
from serving.reconciler.apply import FIELD_MANAGER, Outcome, carry_out
from serving.reconciler.backoff import Patience
from serving.reconciler.events import notes
from serving.reconciler.flags import Flags
from serving.reconciler.judge_concurrency import Looks
from serving.reconciler.observe import observe
from serving.reconciler.own_writes import OwnWrites
from serving.reconciler.plan import Plan, make_plan
from serving.reconciler.preconditions import (
    Obstacle,
    collision,
    disabled,
    forbidden_code,
    unanswered_metrics,
    unknown_runtime,
)
from serving.reconciler.rollouts import Rollouts, seconds_until_pass, up_to
from serving.reconciler.status import make_broken_status, make_invalid_status, make_status
from serving.reconciler.status_rate_limiter import Pacing
from serving.reconciler.times import Times
from serving.types.model import Model
from serving.types.settings.settings import Settings
from serving.types.validation import read_model

log = logging.getLogger(__name__)

LONGEST_FAULT = 200
"""Characters of an unforeseen error that a condition repeats."""
FAILS = "the platform fails at this model ("


class ModelReconciler:
    """Brings Knative's objects to what Models say, and Models' status to what Knative's objects say."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        settings: Settings,
        clock: Clock,
        recorder: Recorder,
        flags: Flags,
        rollouts: Rollouts,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._flags = flags
        self._looks = Looks(rollouts)
        self._times = Times(clock, elapsed or clock.monotonic)
        self._pacing = Pacing(clock)
        self._own = OwnWrites()
        self._patience = Patience()

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look, or None.

        An error that is none of the cluster's is a fault of ours: it stands on the Model, and the pass is tried again.
        """
        try:
            return await self._pass(key)
        except KnodelError:
            raise
        except Exception as error:
            await self._tell(key, error)
            raise

    async def _pass(self, key: Key) -> float | None:
        obj = self._informers[MODEL].get(key.name, key.namespace)
        if obj is None or is_deleting(obj):
            self._pacing.forget(key)
            self._own.forget(key)
            self._patience.forget(key)
            self._looks.forget(key)
            self._times.forget(key)
            return None
        now = self._times.now(obj, stale=self._own.is_spent(key, MODEL, key, version_of(obj)))
        try:
            model = read_model(obj)
        except Invalid as error:
            return await self._write(obj, make_invalid_status(obj, _causes(error), now))
        world = observe(self._informers, model)
        plan = make_plan(model, world, self._settings, await self._obstacle(model))
        plan = up_to(now, plan, self._times.found_at(key), model.spec.rollout)
        outcome = await carry_out(self._cluster, plan, world, self._own)
        looked = await self._looks.look(model, plan.situation, now)
        status = make_status(model, outcome, plan, now, looked)
        later = _soonest(await self._write(obj, status), seconds_until_pass(model, status, now))
        if not _is_stuck(plan, outcome):
            self._patience.forget(key)
            return later
        return _soonest(later, self._patience.look_again(key))

    async def _obstacle(self, model: Model) -> Obstacle | None:
        namespace = self._informers[NAMESPACE].get(model.namespace)
        return (
            collision(self._informers[MODEL], model.object)
            or forbidden_code(model.spec.model_format, model.namespace, namespace)
            or unknown_runtime(self._settings.runtimes, model.spec.runtime)
            or unanswered_metrics(self._settings.rollout.prometheus_url, model)
            or disabled(await self._flags.missing(flags_needed(model)))
        )

    async def _tell(self, key: Key, error: Exception) -> None:
        """Say on the Model that we fail at it. When even that fails the log has both."""
        obj = self._informers[MODEL].get(key.name, key.namespace)
        if obj is None:
            return
        try:
            await self._write(obj, make_broken_status(obj, _fault(obj, error), self._clock.now()))
        except Exception as second:
            log.warning("cannot say on model %s why its passes fail: %s", key, second)

    async def _write(self, obj: Object, status: Object) -> float | None:
        """Write the status when it differs, and record what that means; returns when to come back, if held back."""
        former, key = obj.get("status") or {}, key_of(obj)
        if status == former or self._own.is_spent(key, MODEL, key, version_of(obj)):
            return None
        wait = self._pacing.hold(key, former, status)
        if wait > 0:
            return wait
        try:
            answer = await self._cluster.apply(
                MODEL, _status_of(obj, status), manager=FIELD_MANAGER, force=True, subresource="status"
            )
        except NotFound:
            return None  # deleted meanwhile
        self._own.note(key, MODEL, key, version_of(obj), answer)
        if status.get("rollout") != former.get("rollout"):
            self._times.wrote(key)
        for note in notes(obj, {**obj, "status": status}):
            await self._recorder.event(MODEL, obj, note.type, note.reason, note.message)
        return None


def _status_of(obj: Object, status: Object) -> Object:
    """The apply of a status; it must not meet another state than the one that it was made from."""
    metadata = {
        "name": name_of(obj),
        "namespace": namespace_of(obj),
        "uid": uid_of(obj),
        "resourceVersion": version_of(obj),
    }
    return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "status": status}


def _fault(obj: Object, error: Exception) -> str:
    """What the condition says; as before when the error is of the same type.

    A text with an address or a time differs in each pass: each would write, and be woken by its own write at once.
    """
    name, told = type(error).__name__, condition_of(obj, "Ready") or {}
    if told.get("reason") == "ReconcileFailed" and obj["status"].get("observedGeneration") == generation_of(obj):
        former = str(told.get("message", ""))
        if former.startswith((f"{FAILS}{name}:", f"{FAILS}{name})")):
            return former
    said = one_line(str(error), LONGEST_FAULT)
    return f"{FAILS}{f'{name}: {said}' if said else name}): its log says where; what serves goes on"


def _causes(error: Invalid) -> str:
    return "; ".join(str(cause) for cause in error.causes)


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _is_stuck(plan: Plan, outcome: Outcome) -> bool:
    return bool(plan.foreign) or plan.obstacle is not None or outcome.refusal is not None
