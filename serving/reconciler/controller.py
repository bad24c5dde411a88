"""The controller of Models: maps changes in the cluster to the Models that need a pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_SERVICE,
    MODEL,
    NAMESPACE,
    POD_AUTOSCALER,
    REVISION,
    ROUTE,
    SERVICE,
    Key,
    Object,
    condition_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.states import GroupStates, OneMachine
from serving.reconciler.flags import Flags
from serving.reconciler.model import ModelReconciler
from serving.reconciler.observe import prepare_informers
from serving.reconciler.preconditions import rival_keys
from serving.reconciler.rollout.judging.observer_port import Metrics, NoObserver, Observer
from serving.reconciler.rollouts import RolloutJudge
from serving.types.annotations import LABEL_MODEL
from serving.types.code import code_format
from serving.types.settings.settings import Settings

COMPONENT = "knodel"
"""The source of Events about Models, for the Recorder."""


GATHER = 0.25
"""s for which changes are gathered into one pass. A start or stop of a replica changes Revision and PodAutoscaler about
ten times within this time, and only readers of the status need the result."""

NO_OBSERVER = NoObserver()
"""The default observer."""
ONE_MACHINE = OneMachine()
"""The default of `groups`: no Pods are watched."""

BOOKKEEPING = frozenset({"resourceVersion", "managedFields"})
"""Metadata that changes with every write."""


class ModelController:
    """Runs a pass over a Model when the Model, or an object that belongs to it, changes.

    Create it before `informers.run()`, since it creates the informers that it needs. `elapsed` returns seconds for the
    waits of rollouts, including the time in which the machine sleeps; by default the clock's monotonic seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        *,
        settings: Settings,
        clock: Clock,
        recorder: Recorder,
        flags: Flags,
        observer: Observer = NO_OBSERVER,
        metrics: Metrics = NO_OBSERVER,
        groups: GroupStates = ONE_MACHINE,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        prepare_informers(informers)
        self._informers = informers
        rollouts = RolloutJudge(observer, metrics)
        reconciler = ModelReconciler(cluster, informers, settings, clock, recorder, flags, rollouts, groups, elapsed)
        self.controller = Controller("model", reconciler.reconcile)
        groups.watch(self.controller)
        self.controller.watches_mapped(informers[MODEL], lambda model: [key_of(model)], delay_of_change)
        self.controller.watches_mapped(informers[MODEL], partial(rival_keys, informers[MODEL]), delay_of_change)
        for kind in (SERVICE, CONFIGURATION, ROUTE):
            self.controller.watches_owned(informers[kind], MODEL)
            self.controller.watches_mapped(informers[kind], _models_of_child)
        self.controller.watches_mapped(informers[REVISION], _model_of_label, delay_of_change)
        self.controller.watches_mapped(informers[NAMESPACE], self._models_with_code)
        self.controller.watches_mapped(informers[POD_AUTOSCALER], _model_of_label, lambda _before, _after: GATHER)

    def _models_with_code(self, namespace: Object) -> list[Key]:
        """Return the Models in the namespace whose format needs its label, since it runs code."""

        def has_code(model: Object) -> bool:
            spec = model.get("spec")
            return isinstance(spec, dict) and bool(code_format(spec))

        name = name_of(namespace)
        return [key_of(one) for one in self._informers[MODEL] if namespace_of(one) == name and has_code(one)]

    async def run(self) -> None:
        """Run until cancelled. Passes begin when every informer has its first list: earlier ones would lack objects."""
        await self._informers.synced()
        await self.controller.run()


def delay_of_change(before: Object, after: Object) -> float:
    """Return the seconds until the pass after a change: 0 for changes that deploys wait for, else `GATHER`.

    Deploys wait for changes of metadata, spec and the condition Ready.
    """
    return GATHER if _urgent_parts(before) == _urgent_parts(after) else 0.0


def _urgent_parts(obj: Object) -> tuple[Object, Object | None, Object | None]:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in BOOKKEEPING}
    return metadata, obj.get("spec"), condition_of(obj, "Ready")


def _model_of_label(obj: Object) -> list[Key]:
    """Return the Model of a Revision or PodAutoscaler, by its label."""
    model = labels_of(obj).get(LABEL_MODEL)
    return [Key(namespace_of(obj), model)] if model else []


def _models_of_child(obj: Object) -> list[Key]:
    """Return the Model of a Service's child, and the Model of the object's own name, which it may have blocked."""
    service = labels_of(obj).get(LABEL_SERVICE)
    keys = [key_of(obj), *_model_of_label(obj)]
    return [*keys, Key(namespace_of(obj), service)] if service else keys
