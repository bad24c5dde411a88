"""One pass over one WarmPool: bring its seed to what it says, and say in `status.seed` how the seed is.

The members, and all else of the status, are the pool manager's (`autoscaler.warmpool`). What the seed makes is
collected by its ownerReferences.
"""

from __future__ import annotations

from dataclasses import dataclass

from clusters.base.api import Cluster
from clusters.base.errors import ClusterError, Forbidden, Invalid, NotFound
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
from serving.reconciler.actions import Apply, differs
from serving.reconciler.apply import FIELD_MANAGER
from serving.reconciler.backoff import Patience
from serving.reconciler.observe import has_observed
from serving.reconciler.preconditions import Obstacle, forbidden_code, unknown_runtime
from serving.types.settings.settings import Settings
from serving.types.warm_pool import WarmPool, read_warm_pool

INITIAL_SCALE = "initial-scale"
"""What Knative's webhook names when it refuses a seed (knative/serving `pkg/apis/autoscaling`)."""


@dataclass(frozen=True, slots=True)
class Seed:
    """How a seed is; `stuck` when only somebody else can help, and nobody may tell when they did."""

    ready: bool
    message: str
    stuck: bool = False

    def to_json(self) -> Object:
        """As it stands in `status.seed`."""
        return {"ready": self.ready, "message": self.message}


class WarmPoolReconciler:
    """Keeps the seeds of WarmPools."""

    def __init__(self, cluster: Cluster, informers: Informers, settings: Settings) -> None:
        self._cluster = cluster
        self._informers = informers
        self._settings = settings
        self._patience = Patience()

    async def reconcile(self, key: Key) -> float | None:
        """One pass; returns the seconds until the next look, or None."""
        obj = self._informers[WARM_POOL].get(key.name, key.namespace)
        if obj is None or is_deleting(obj):
            self._patience.forget(key)
            return None
        seed = await self._seed(obj)
        await self._write(obj, seed)
        if seed.stuck:
            return self._patience.look_again(key)
        self._patience.forget(key)
        return None

    async def _seed(self, obj: Object) -> Seed:
        try:
            pool = read_warm_pool(obj)
        except Invalid as error:
            return Seed(False, _causes(error))
        live = self._informers[CONFIGURATION].get(seed_name(pool.name), pool.namespace)
        if live is not None and is_deleting(live):
            return Seed(False, f"Configuration {name_of(live)} is being deleted: it is made anew once it is gone")
        if live is not None and not is_controlled_by(live, obj):
            return Seed(
                False,
                f"Configuration {name_of(live)} is there and is none of this pool's: delete it, or give the pool "
                "another name",
            )
        obstacle = self._obstacle(pool)
        if obstacle is not None:
            return Seed(False, f"{obstacle.reason}: {obstacle.message}", stuck=True)
        try:
            return _state_of(await self._applied(pool, live))
        except (Invalid, Forbidden) as error:
            return Seed(False, _explain(error), stuck=True)

    def _obstacle(self, pool: WarmPool) -> Obstacle | None:
        wanted, namespace = pool.spec.template, self._informers[NAMESPACE].get(pool.namespace)
        return forbidden_code(wanted.model_format, pool.namespace, namespace) or unknown_runtime(
            self._settings.runtimes, wanted.runtime
        )

    async def _applied(self, pool: WarmPool, live: Object | None) -> Object:
        """The Configuration as it stands once it says what it should."""
        wanted = make_seed(pool, self._settings)
        if live is not None and not differs(wanted, live):
            return live
        action = Apply.over(CONFIGURATION, wanted, live)
        if action.version:
            wanted = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": action.version}}
        return await self._cluster.apply(CONFIGURATION, wanted, manager=FIELD_MANAGER, force=action.force)

    async def _write(self, obj: Object, seed: Seed) -> None:
        """Our part of the status alone: the pool manager's field manager has the rest."""
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
            return  # deleted meanwhile


def _state_of(configuration: Object) -> Seed:
    """What Knative says of the seed's newest Revision."""
    if not has_observed(configuration):
        return Seed(False, "Knative has not looked at the seed's present version yet")
    if is_true(configuration, "Ready"):
        return Seed(True, "")
    said = condition_of(configuration, "Ready") or {}
    words = ": ".join(str(said[part]) for part in ("reason", "message") if said.get(part))
    return Seed(False, f"Configuration {name_of(configuration)}: {words or 'Knative makes its Revision'}")


def _explain(error: ClusterError) -> str:
    words = _causes(error) if isinstance(error, Invalid) else str(error)
    remedy = f"{ZERO_INITIAL_SCALE.remedy}, as `knodel install --kube-context NAME --configure-knative` does"
    return f"{words}: {remedy}" if INITIAL_SCALE in words else words


def _causes(error: Invalid) -> str:
    return "; ".join(str(cause) for cause in error.causes) or str(error)
