"""Reconcile one WarmPool: apply its seed, and report the seed's state in `status.seed`.

The pool manager (`autoscaler.warmpool`) maintains the members and the other fields of the status. The cluster collects
the objects of a deleted seed by their ownerReferences.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusters.base.api import Cluster
from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import (
    CONFIGURATION,
    NAMESPACE,
    WARM_POOL,
    Key,
    Object,
    condition_of,
    is_controlled_by,
    is_deleting,
    is_true,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.runtime.informer import Informers
from serving.makers.knative_flags import ZERO_INITIAL_SCALE
from serving.makers.warm_pool import make_seed, seed_name
from serving.reconciler.actions import Apply, needs_apply
from serving.reconciler.apply import FIELD_MANAGER
from serving.reconciler.backoff import RefusalBackoff
from serving.reconciler.observe import has_observed
from serving.reconciler.preconditions import forbidden_code, part_of_gpu, unknown_runtime
from serving.types.settings.settings import Settings
from serving.types.warm_pool import WarmPool, read_warm_pool

INITIAL_SCALE = "initial-scale"
"""The annotation in the message by which Knative's webhook refuses a seed (knative/serving `pkg/apis/autoscaling`)."""


@dataclass(frozen=True, slots=True)
class Seed:
    """The state of a seed. `stuck`: it needs a change outside of the WarmPool, which no watch reports."""

    ready: bool
    message: str
    stuck: bool = False

    def to_json(self) -> Object:
        """Return `status.seed`."""
        return {"ready": self.ready, "message": self.message}


class WarmPoolReconciler:
    """Creates and updates the seeds of WarmPools."""

    def __init__(self, cluster: Cluster, informers: Informers, settings: Settings, *, parts_of_gpus: bool) -> None:
        self._cluster = cluster
        self._informers = informers
        self._settings = settings
        self._parts_of_gpus = parts_of_gpus
        self._backoff = RefusalBackoff()

    async def reconcile(self, key: Key) -> float | None:
        """Run one pass over the WarmPool. Return the seconds until the next one is due, or None."""
        obj = self._informers[WARM_POOL].get(key.name, key.namespace)
        if obj is None or is_deleting(obj):
            self._backoff.forget(key)
            return None
        seed = await self._seed(obj)
        await self._write(obj, seed)
        if seed.stuck:
            return self._backoff.next_delay(key)
        self._backoff.forget(key)
        return None

    async def _seed(self, obj: Object) -> Seed:
        try:
            pool = read_warm_pool(obj)
        except Invalid as error:
            return Seed(False, _causes(error))
        live = self._informers[CONFIGURATION].get(seed_name(pool.name), pool.namespace)
        if live is not None and is_deleting(live):
            return Seed(False, f"Configuration {name_of(live)} is being deleted; a new one follows")
        if live is not None and not is_controlled_by(live, obj):
            return Seed(
                False,
                f"Configuration {name_of(live)} exists and does not belong to this pool: delete it, or rename the pool",
            )
        wanted, namespace = pool.spec.template, self._informers[NAMESPACE].get(pool.namespace)
        blocked = forbidden_code(wanted.model_format, pool.namespace, namespace)
        blocked = blocked or unknown_runtime(self._settings.runtimes, wanted.runtime)
        blocked = blocked or part_of_gpu([wanted.resources], supported=self._parts_of_gpus)
        if blocked is not None:
            return Seed(False, f"{blocked.reason}: {blocked.message}", stuck=True)
        try:
            return _state_of(await self._applied(pool, live))
        except (Invalid, Forbidden) as error:
            causes = _causes(error) if isinstance(error, Invalid) else str(error)
            remedy = f"{ZERO_INITIAL_SCALE.remedy}, as `knodel install --kube-context NAME --configure-knative` does"
            return Seed(False, f"{causes}: {remedy}" if INITIAL_SCALE in causes else causes, stuck=True)

    async def _applied(self, pool: WarmPool, live: Object | None) -> Object:
        """Apply the seed if it differs, and return its Configuration."""
        wanted = make_seed(pool, self._settings)
        if live is not None and not needs_apply(wanted, live):
            return live
        action = Apply.over(CONFIGURATION, wanted, live)
        if action.version:
            wanted = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": action.version}}
        return await self._cluster.apply(CONFIGURATION, wanted, manager=FIELD_MANAGER, force=action.force)

    async def _write(self, obj: Object, seed: Seed) -> None:
        """Write `status.seed`. The other fields of the status belong to the pool manager's field manager."""
        if ((obj.get("status") or {}).get("seed")) == seed.to_json():
            return
        metadata = {"name": name_of(obj), "namespace": namespace_of(obj), "uid": uid_of(obj)}
        status = {
            "apiVersion": WARM_POOL.api_version,
            "kind": WARM_POOL.kind,
            "metadata": metadata,
            "status": {"seed": seed.to_json()},
        }
        try:
            await self._cluster.apply(WARM_POOL, status, manager=FIELD_MANAGER, force=True, subresource="status")
        except NotFound:
            return  # deleted in the meantime


def _state_of(configuration: Object) -> Seed:
    """Return the state of the seed's newest Revision, from the conditions of its Configuration."""
    if not has_observed(configuration):
        return Seed(False, "Knative has not observed the seed's present version yet")
    if is_true(configuration, "Ready"):
        return Seed(True, "")
    ready = condition_of(configuration, "Ready") or {}
    cause = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part))
    return Seed(False, f"Configuration {name_of(configuration)}: {cause or 'Knative creates its Revision'}")


def _causes(error: Invalid) -> str:
    return "; ".join(str(cause) for cause in error.causes) or str(error)
