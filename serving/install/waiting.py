"""Wait for objects of a cluster with a deadline, and report what is missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, KnodelError, NotFound, Unavailable
from clusters.base.objects import DEPLOYMENT, POD, Key, Kind, Object, condition_of, is_true, labels_of
from serving.install.kinds import CRD

POLL = 0.5  # s between two checks; an installation takes about ten
ESTABLISHED = "Established"
AVAILABLE = "Available"

Report = Callable[[str], None]
"""A function that shows the object that is waited for."""


class NotDone(KnodelError):
    """The deadline of a wait has passed."""


class WaitDeadline:
    """A deadline in seconds that several waits share."""

    def __init__(self, clock: Clock, seconds: float, report: Report) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ends = clock.monotonic() + seconds
        self._report = report

    async def until(self, missing: Callable[[], Awaitable[str]]) -> None:
        """Wait until `missing` returns an empty string. Raises NotDone with its text at the deadline."""
        while True:
            try:
                words = await missing()
            except Unavailable as error:  # an API server may restart during the installation
                words = str(error)
            if not words:
                return
            self._report(words)
            if self._clock.monotonic() >= self._ends:
                raise NotDone(f"not done after {self._seconds:g} s: {words}")
            await self._clock.sleep(POLL)


async def not_established(cluster: Cluster, name: str) -> str:
    """Return why a CustomResourceDefinition is not served, or an empty string."""
    definition = await cluster.get(CRD, name)
    if is_true(definition, ESTABLISHED):
        return ""
    accepted = condition_of(definition, "NamesAccepted") or {}
    detail = accepted.get("message", "") if accepted.get("status") == "False" else ""
    return f"customresourcedefinition {name} is not served yet{f': {detail}' if detail else ''}"


async def not_available(cluster: Cluster, key: Key) -> str:
    """Return why a Deployment does not run its present template on all replicas, or an empty string."""
    deployment = await cluster.get(DEPLOYMENT, key.name, key.namespace)
    status, wanted = deployment.get("status") or {}, int((deployment.get("spec") or {}).get("replicas", 1))
    updated = min(int(status.get("updatedReplicas") or 0), int(status.get("availableReplicas") or 0))
    if is_true(deployment, AVAILABLE) and updated >= wanted and int(status.get("replicas") or 0) <= wanted:
        return ""
    why = await _why(cluster, deployment, key)
    return (
        f"deployment {key.name}: {min(updated, wanted)} of {wanted} replicas are available{f' ({why})' if why else ''}"
    )


async def still_there(cluster: Cluster, kind: Kind, key: Key) -> str:
    """Return a text that names an object which still exists, or an empty string."""
    try:
        await cluster.get(kind, key.name, key.namespace)
    except NotFound:
        return ""
    return f"{kind.kind.lower()} {key} is still being deleted"


async def _why(cluster: Cluster, deployment: Object, key: Key) -> str:
    """Return why a replica is not available, according to its Pods or the Deployment."""
    failure = condition_of(deployment, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        return str(failure.get("message", ""))
    labels = ((deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    try:
        pods = (await cluster.list(POD, key.namespace, ",".join(f"{name}={labels[name]}" for name in labels))).items
    except ClusterError:  # the caller may lack the right to read Pods
        return ""
    return next((reason for pod in pods if labels.items() <= labels_of(pod).items() and (reason := _waiting(pod))), "")


def _waiting(pod: Object) -> str:
    scheduled = condition_of(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("message", ""))
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") not in (None, "ContainerCreating"):
            words = [waiting["reason"], waiting.get("message", ""), ended.get("message", "")]
            return ": ".join(str(word).strip() for word in words if word)
    return ""
