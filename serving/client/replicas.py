"""Find out from their Pods why replicas of a Model do not run.

Knative reads the status of a Pod only when its Deployment changes. For a container that keeps crashing, that happens
only after `startupDeadline`; until then, only the Pod shows the cause.
"""

from __future__ import annotations

import json

from autoscaler.warmpool.claims.pods import is_active
from clusters.base.errors import KnodelError
from clusters.base.objects import ANNOTATION_DEVICES, POD, Object, annotations_of, condition_of, name_of
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.types.annotations import LABEL_MODEL

SIDECAR = "queue-proxy"  # Knative's container beside the model's
STARTING = ("ContainerCreating", "PodInitializing")  # waiting reasons of a normal start
PLAIN = ("", "Error", "Completed")  # termination reasons that add nothing to the exit code
PENDING = "Pending"  # phase of a Pod that runs on no node yet
MAX_REPLICAS = 3  # replicas to report; those of one version usually fail alike


def container_of(pod: Object) -> str:
    """Return the name of the container with the model server, not of Knative's sidecar."""
    names = [str(one["name"]) for one in pod["spec"]["containers"]]
    return next((name for name in names if name != SIDECAR), names[0])


def status_of(pod: Object) -> Object:
    """Return the status of the container with the model server; empty while there is none."""
    name, states = container_of(pod), (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in states if one.get("name") == name), {})


def replica_problems(api: ApiCalls, name: str, namespace: str) -> Call[list[str]]:
    """Return a sentence for each replica that fails to run, newest first.

    Callers add them to another message, so the list is empty if Pods cannot be read.
    """
    try:
        pods = (yield from api.list(POD, namespace, f"{LABEL_MODEL}={name}"))["items"]
    except KnodelError:
        return []
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    return [f"replica {name_of(pod)} {problem}" for pod in newest if (problem := _problem_of(pod))][:MAX_REPLICAS]


def isolation_notes(api: ApiCalls, name: str, namespace: str) -> Call[list[str]]:
    """Return a sentence if replicas share a GPU with others and nothing isolates them; empty if Pods cannot be read."""
    try:
        pods = (yield from api.list(POD, namespace, f"{LABEL_MODEL}={name}"))["items"]
    except KnodelError:
        return []
    unprotected = [name_of(pod) for pod in pods if is_active(pod) and _is_isolated(pod) is False]
    if not unprotected:
        return []
    why = "nvidia-cuda-mps-control is not on the PATH of the platform"
    return [f"nothing isolates {', '.join(unprotected[:MAX_REPLICAS])} from others on the same GPU: {why}"]


def _is_isolated(pod: Object) -> bool | None:
    try:
        isolated = json.loads(annotations_of(pod).get(ANNOTATION_DEVICES, "{}")).get("isolated")
    except (ValueError, AttributeError, RecursionError):
        return None
    return isolated if isinstance(isolated, bool) else None


def not_started_reason(pod: Object) -> str:
    """Return why the container has no log yet; empty if it has one, because it runs or ran before a restart."""
    status, found = pod.get("status") or {}, status_of(pod)
    waiting = (found.get("state") or {}).get("waiting")
    if found.get("restartCount") or (waiting is None and (found or status.get("phase") != PENDING)):
        return ""
    unmet: Object = next((one for one in status.get("conditions") or () if one.get("status") == "False"), {})
    reason = waiting or unmet  # a Pod without a node has only conditions
    words = [str(reason[part]) for part in ("reason", "message") if reason.get(part)]
    return f"replica {name_of(pod)} has not started: {': '.join(words) or 'no reason given yet'}"


def _problem_of(pod: Object) -> str:
    """Return why the replica fails to run; empty if it runs, starts normally, terminates or has terminated.

    An evicted Pod remains in the list until it is garbage-collected.
    """
    container = status_of(pod)
    if container.get("ready") or not is_active(pod):
        return ""
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if ended and ended.get("exitCode"):
        reason = str(ended.get("reason") or "")
        code = f"exit code {ended['exitCode']}" + (f" ({reason})" if reason not in PLAIN else "")
        message = str(ended.get("message") or "").strip()
        return f"ended with {code}" + (f": {message}" if message else "")
    waiting = state.get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in STARTING:
        return f"has not started: {_words(waiting)}"
    scheduled = condition_of(pod, "PodScheduled") or {}
    return f"has no node: {_words(scheduled)}" if scheduled.get("status") == "False" else ""


def _words(state: Object) -> str:
    return ": ".join(str(state[part]).strip() for part in ("reason", "message") if state.get(part))
