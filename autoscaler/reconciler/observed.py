"""A snapshot of the informers' objects for one PodAutoscaler, taken once at the beginning of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.types import RESTART_ANNOTATION
from autoscaler.warmpool.claims.pods import is_unadopted
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Object,
    annotations_of,
    controller_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.net.endpoints import Endpoint, endpoint_of, is_ready
from clusters.runtime.informer import Informers

KINDS = (POD_AUTOSCALER, SERVERLESS_SERVICE, DEPLOYMENT, POD)
_BY_REVISION = "autoscaler.revision"


@dataclass(frozen=True, slots=True)
class ObservedRevision:
    """A PodAutoscaler and its objects; `endpoints` are those of its ready `pods`."""

    pod_autoscaler: Object
    deployment: Object | None
    serverless_service: Object | None
    endpoints: tuple[Endpoint, ...]
    pods: Sequence[Object] = ()

    @property
    def current(self) -> int:
        """Desired replicas of the Deployment."""
        return 0 if self.deployment is None else int(self.deployment["spec"].get("replicas", 1))

    @property
    def ready(self) -> int:
        """Replicas that accept requests."""
        return len(self.endpoints)

    @property
    def restarting(self) -> frozenset[str]:
        """Names of the Pods that a restart has still to replace."""
        names = annotations_of(self.pod_autoscaler).get(RESTART_ANNOTATION)
        if not names:
            return frozenset()
        return frozenset(name_of(pod) for pod in self.pods if not is_deleting(pod)).intersection(names.split(","))

    def surge(self, desired: int) -> int:
        """Return 1 while a restart needs a replica beyond the `desired` ones, else 0.

        A restart replaces Pods in turns: one more starts, and when it is ready, the Deployment is scaled down, which
        terminates a Pod of the restart. So there are never fewer ready replicas than without a restart.

            desired 2, Pods a and b are restarted   Pods                   surge
            both are ready                          a, b                   1
            the new one starts                      a, b, c (starting)     1
            it is ready: one of the old ones goes   a, b, c                0
            it is terminating                       b, c                   1

        A claimed member of a warm pool counts once its ReplicaSet owns it, for which the Deployment must be scaled.
        """
        restarting = self.restarting
        if not restarting or desired <= 0:
            return 0
        present = [pod for pod in self.pods if not is_deleting(pod) and not is_unadopted(pod)]
        is_done = all(is_ready(pod) for pod in present if name_of(pod) not in restarting)
        return 0 if len(present) > desired and is_done else 1


class ObjectReader:
    """Reads the informers' caches, without calls to the cluster."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        for kind in KINDS:
            informers[kind]  # creates the informer
        informers[POD].add_index(_BY_REVISION, lambda pod: [str(key) for key in keys_by_revision(pod)])

    def pod_autoscaler(self, key: Key) -> Object | None:
        """Return the PodAutoscaler, or None."""
        return self._informers[POD_AUTOSCALER].get(key.name, key.namespace)

    def observe(self, pod_autoscaler: Object) -> ObservedRevision:
        """Return a PodAutoscaler with its objects."""
        namespace = namespace_of(pod_autoscaler)
        deployment = self._informers[DEPLOYMENT].get(pod_autoscaler["spec"]["scaleTargetRef"]["name"], namespace)
        service = self._informers[SERVERLESS_SERVICE].get(name_of(pod_autoscaler), namespace)
        owner = controller_of(pod_autoscaler)
        uid = None if owner is None else owner["uid"]  # of the revision; a deleted one may have had the same name
        if deployment is not None and (controller := controller_of(deployment)) is not None:
            deployment = deployment if uid in (None, controller["uid"]) else None
        revision = labels_of(pod_autoscaler).get(LABEL_REVISION) or name_of(pod_autoscaler)
        named = self._informers[POD].indexed(_BY_REVISION, f"{namespace}/{revision}")
        pods = [pod for pod in named if uid is None or labels_of(pod).get(LABEL_REVISION_UID, uid) == uid]
        endpoints = (endpoint_of(pod) for pod in pods if is_ready(pod))
        return ObservedRevision(
            pod_autoscaler,
            deployment,
            service if service is not None and is_controlled_by(service, pod_autoscaler) else None,
            tuple(sorted((one for one in endpoints if one is not None), key=lambda one: one.pod)),
            pods,
        )


def keys_by_revision(obj: Object) -> list[Key]:
    """Return the PodAutoscaler of a Deployment or Pod: Knative gives it the revision's name."""
    revision = labels_of(obj).get(LABEL_REVISION)
    return [Key(namespace_of(obj), revision)] if revision else []
