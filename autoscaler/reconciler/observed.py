"""A snapshot of the informers' objects for one PodAutoscaler, taken once at the beginning of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    POD,
    POD_AUTOSCALER,
    SERVERLESS_SERVICE,
    Key,
    Object,
    controller_of,
    is_controlled_by,
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
