"""The controller of Models: which changes in the cluster wake which Model."""

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
from serving.reconciler.flags import Flags
from serving.reconciler.model import ModelReconciler
from serving.reconciler.observe import prepare
from serving.reconciler.preconditions import rival_keys
from serving.reconciler.rollout.judging.observer_port import Metrics, Observer, Unseen
from serving.reconciler.rollouts import Rollouts
from serving.types.annotations import LABEL_MODEL
from serving.types.code import runs_code
from serving.types.settings.settings import Settings

COMPONENT = "knodel"
"""Who the Events of Models are from; give it to the Recorder."""


GATHER = 0.25
"""s; a start or an end of a replica changes Revision and PodAutoscaler some ten times within this time, and what a
Model tells of that is for people."""

UNSEEN = Unseen()
"""No one watches: rollouts hold at their first step."""

REMARKS = frozenset({"resourceVersion", "managedFields"})
"""Metadata that changes with every write."""


class ModelController:
    """Runs passes over Models whenever they, or what belongs to them, change.

    Make it before `informers.run()`: it asks for the informers that it needs. `elapsed`: seconds that no rollout's wait
    loses, those in which the machine sleeps among them; the clock's own when there is none.
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
        observer: Observer = UNSEEN,
        metrics: Metrics = UNSEEN,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        prepare(informers)
        self._informers = informers
        rollouts = Rollouts(observer, metrics)
        reconciler = ModelReconciler(cluster, informers, settings, clock, recorder, flags, rollouts, elapsed)
        self.controller = Controller("model", reconciler.reconcile)
        self.controller.watches_mapped(informers[MODEL], lambda model: [key_of(model)], patience_with)
        self.controller.watches_mapped(informers[MODEL], partial(rival_keys, informers[MODEL]), patience_with)
        for kind in (SERVICE, CONFIGURATION, ROUTE):
            self.controller.watches_owned(informers[kind], MODEL)
            self.controller.watches_mapped(informers[kind], _names)
        self.controller.watches_mapped(informers[REVISION], _labelled, patience_with)
        self.controller.watches_mapped(informers[NAMESPACE], self._with_code)
        self.controller.watches_mapped(informers[POD_AUTOSCALER], _labelled, lambda _before, _after: GATHER)

    def _with_code(self, namespace: Object) -> list[Key]:
        """The Models that the label of their namespace concerns."""
        name = name_of(namespace)
        return [key_of(one) for one in self._informers[MODEL] if namespace_of(one) == name and _runs_code(one)]

    async def run(self) -> None:
        """Work until cancelled, once every informer holds its first list: a pass over half a world would err."""
        await self._informers.synced()
        await self.controller.run()


def patience_with(before: Object, after: Object) -> float:
    """None with what a deploy may wait for: what is wished, and whether all is well; some with all other status."""
    return GATHER if _wording(before) == _wording(after) else 0.0


def _wording(obj: Object) -> tuple[Object, Object | None, Object | None]:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in REMARKS}
    return metadata, obj.get("spec"), condition_of(obj, "Ready")


def _runs_code(model: Object) -> bool:
    spec = model.get("spec")
    return isinstance(spec, dict) and runs_code(str(spec.get("modelFormat")))


def _labelled(obj: Object) -> list[Key]:
    """The Model that a Revision or PodAutoscaler was made for."""
    model = labels_of(obj).get(LABEL_MODEL)
    return [Key(namespace_of(obj), model)] if model else []


def _names(obj: Object) -> list[Key]:
    """The Model of a Service's child, and the one whose name the object bears: it may have been in its way."""
    service = labels_of(obj).get(LABEL_SERVICE)
    keys = [key_of(obj), *_labelled(obj)]
    return [*keys, Key(namespace_of(obj), service)] if service else keys
