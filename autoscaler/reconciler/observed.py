"""What the informers know about one PodAutoscaler, read once at the beginning of a pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
class Observed:
    """A PodAutoscaler and what belongs to it; `endpoints` are the ready ones of its `pods`."""

    pod_autoscaler: Object
    deployment: Object | None
    serverless_service: Object | None
    endpoints: tuple[Endpoint, ...]
    pods: Sequence[Object] = ()

    @property
    def current(self) -> int:
        """Replicas asked for."""
        return 0 if self.deployment is None else int(self.deployment["spec"].get("replicas", 1))

    @property
    def ready(self) -> int:
        """Replicas that take requests."""
        return len(self.endpoints)


class View:
    """Reads of the informers' memory; costs no call to the cluster."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers
        for kind in KINDS:
            informers[kind]  # asked for, so that it runs
        informers[POD].add_index(_BY_REVISION, _revision_of)

    def pod_autoscaler(self, key: Key) -> Object | None:
        """As last seen."""
        return self._informers[POD_AUTOSCALER].get(key.name, key.namespace)

    def observe(self, pod_autoscaler: Object) -> Observed:
        """All that belongs to it."""
        namespace = namespace_of(pod_autoscaler)
        deployment = self._informers[DEPLOYMENT].get(pod_autoscaler["spec"]["scaleTargetRef"]["name"], namespace)
        service = self._informers[SERVERLESS_SERVICE].get(name_of(pod_autoscaler), namespace)
        pods = self._pods(pod_autoscaler)
        return Observed(
            pod_autoscaler,
            deployment if deployment is not None and _siblings(pod_autoscaler, deployment) else None,
            service if service is not None and is_controlled_by(service, pod_autoscaler) else None,
            _endpoints(pods),
            pods,
        )

    def _pods(self, pod_autoscaler: Object) -> list[Object]:
        revision = labels_of(pod_autoscaler).get(LABEL_REVISION) or name_of(pod_autoscaler)
        pods = self._informers[POD].indexed(_BY_REVISION, f"{namespace_of(pod_autoscaler)}/{revision}")
        return [pod for pod in pods if _of_same_revision(pod_autoscaler, pod)]


def keys_by_revision(obj: Object) -> list[Key]:
    """The PodAutoscaler of a Deployment or Pod: Knative names it as the revision."""
    revision = labels_of(obj).get(LABEL_REVISION)
    return [Key(namespace_of(obj), revision)] if revision else []


def _revision_of(pod: Object) -> Iterable[str]:
    return [str(key) for key in keys_by_revision(pod)]


def _endpoints(pods: Iterable[Object]) -> tuple[Endpoint, ...]:
    found = (endpoint_of(pod) for pod in pods if is_ready(pod))
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.pod))


def _of_same_revision(pod_autoscaler: Object, pod: Object) -> bool:
    """A Pod of a namesake that was deleted may live a moment longer than it."""
    ours, theirs = controller_of(pod_autoscaler), labels_of(pod).get(LABEL_REVISION_UID)
    return ours is None or theirs is None or ours["uid"] == theirs


def _siblings(pod_autoscaler: Object, deployment: Object) -> bool:
    """Whether one revision controls both: a Deployment left from a namesake of another uid is not to be scaled."""
    ours, theirs = controller_of(pod_autoscaler), controller_of(deployment)
    return ours is None or theirs is None or ours["uid"] == theirs["uid"]
