"""What the replicas of a Model that do not run say of themselves.

Knative looks into a Pod only when its Deployment changes, which a container that keeps crashing does not bring about
before `startupDeadline`: until then the Pod alone knows the cause.
"""

from __future__ import annotations

from autoscaler.warmpool.claims.pods import is_active
from clusters.base.errors import KnodelError
from clusters.base.objects import POD, Object, condition_of, name_of
from serving.cli.client.client import Client
from serving.types.annotations import LABEL_MODEL

SIDECAR = "queue-proxy"  # Knative's container beside the model's
STARTING = ("ContainerCreating", "PodInitializing")  # reasons of a container with which nothing is wrong
PLAIN = ("", "Error", "Completed")  # reasons of an end that say no more than its exit code
PENDING = "Pending"  # phase of a Pod that no node runs yet
MOST = 3  # replicas that are told of; those of one version end alike


def container_of(pod: Object) -> str:
    """The name of the container with the model; on Kubernetes Knative's proxy is another."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    return next((name for name in names if name != SIDECAR), names[0])


def status_of(pod: Object) -> Object:
    """The status of the container with the model; empty while there is none."""
    name, states = container_of(pod), (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in states if one.get("name") == name), {})


def troubles(client: Client, name: str, namespace: str) -> list[str]:
    """What keeps replicas of the Model from running, a sentence each, those of the newest first.

    It is said beside something worse, so it is empty where Pods cannot be seen.
    """
    try:
        pods = client.list(POD, namespace, f"{LABEL_MODEL}={name}")["items"]
    except KnodelError:
        return []
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    return [f"replica {name_of(pod)} {said}" for pod in newest if (said := _trouble(pod))][:MOST]


def not_started(pod: Object) -> str:
    """Why the container has no log, empty when it has one: it runs, or it ran before it was restarted."""
    status, found = pod.get("status") or {}, status_of(pod)
    waiting = (found.get("state") or {}).get("waiting")
    if found.get("restartCount") or (waiting is None and (found or status.get("phase") != PENDING)):
        return ""
    unmet: Object = next((one for one in status.get("conditions") or () if one.get("status") == "False"), {})
    reason = waiting or unmet  # a Pod that no node has yet has conditions only
    words = [str(reason[part]) for part in ("reason", "message") if reason.get(part)]
    return f"replica {name_of(pod)} has not started: {': '.join(words) or 'no reason given yet'}"


def _trouble(pod: Object) -> str:
    """Empty when it runs, is on its way, goes, or is over (an evicted one lies about until it is collected)."""
    container = status_of(pod)
    if container.get("ready") or not is_active(pod):
        return ""
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if ended and ended.get("exitCode"):
        return _end(ended)
    waiting = state.get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in STARTING:
        return f"has not started: {_words(waiting)}"
    scheduled = condition_of(pod, "PodScheduled") or {}
    return f"has no node: {_words(scheduled)}" if scheduled.get("status") == "False" else ""


def _end(ended: Object) -> str:
    reason = str(ended.get("reason") or "")
    code = f"exit code {ended['exitCode']}" + (f" ({reason})" if reason not in PLAIN else "")
    message = str(ended.get("message") or "").strip()
    return f"ended with {code}" + (f": {message}" if message else "")


def _words(state: Object) -> str:
    return ": ".join(str(state[part]).strip() for part in ("reason", "message") if state.get(part))
