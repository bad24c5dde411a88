"""Read leaders and workers from their Pods, and make the Pod of a worker from its leader's. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from autoscaler.warmpool.claims.pods import FINISHED
from clusters.base.objects import (
    LABEL_REVISION,
    POD,
    Kind,
    Object,
    annotations_of,
    condition_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from clusters.base.pod_queues import VOLCANO, queue_metadata, queue_of
from clusters.base.quantities import format_cores
from clusters.base.redact import one_line
from clusters.net.endpoints import is_ready
from serving.engines.base.group import LEADER_VARIABLE, RANK_VARIABLE
from serving.groups.plan import Leader, Phase, Worker
from serving.makers.pod_spec import CONTAINER, LEADER
from serving.types.annotations import ANNOTATION_WORKERS, LABEL_GROUP, LABEL_GROUP_ROLE
from serving.types.workers import Gang, Workers, from_json

WORKER: Final = "worker"
"""Value of the label `knodel.dev/group-role`."""
LABEL_RANK: Final = "knodel.dev/group-rank"
"""On a worker's Pod: its rank, from 1."""
ANNOTATION_START: Final = "knodel.dev/leader-start"
"""On a worker's Pod: the number of restarts of its leader's container when it was created."""
GRACE: Final = 5
"""Seconds for the termination of a worker, which has no requests of its own."""
POD_GROUP: Final = Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
LONGEST_MESSAGE: Final = 300  # characters
_OF_THE_POD: Final = (
    "affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "imagePullSecrets",
    "nodeSelector", "priorityClassName", "runtimeClassName", "schedulerName", "securityContext", "serviceAccountName",
    "tolerations", "topologySpreadConstraints",
)  # fmt: skip
"""Fields of the leader's Pod that a worker has, too. Containers beside the server's are left out."""
_OF_THE_CONTAINER: Final = (
    "args", "command", "env", "envFrom", "image", "imagePullPolicy", "name", "securityContext",
    "terminationMessagePath", "terminationMessagePolicy", "volumeMounts", "workingDir",
)  # fmt: skip
"""Fields of the leader's container that a worker has, too: all but ports, probes and resources."""
_ORDINARY_WAITS: Final = ("ContainerCreating", "PodInitializing")


def workers_of(leader: Object) -> Workers | None:
    """Return the workers that a leader's Pod must have; None for Pods that are no leaders.

    They are those of its own Revision, whose template has the annotation.
    """
    labels = labels_of(leader)
    if labels.get(LABEL_GROUP_ROLE) != LEADER or LABEL_REVISION not in labels:
        return None
    if not any(one.get("name") == CONTAINER for one in (leader.get("spec") or {}).get("containers") or ()):
        return None
    return from_json(annotations_of(leader).get(ANNOTATION_WORKERS, ""))


def leader_of(pod: Object) -> Leader:
    """Return the plan's view of a leader's Pod."""
    status, server = pod.get("status") or {}, _container_status(pod)
    state, before = server.get("state") or {}, server.get("lastState") or {}
    return Leader(
        name_of(pod),
        address=str(status.get("podIP") or ""),
        start=int(server.get("restartCount") or 0),
        ending=is_deleting(pod),
        ended=has_ended(pod),
        crashed="running" not in state and ("terminated" in state or "terminated" in before),
    )


def has_ended(pod: Object) -> bool:
    """Return whether all containers of a Pod have ended for good, as those of an evicted one."""
    return (pod.get("status") or {}).get("phase") in FINISHED


def worker_of(pod: Object) -> Worker:
    """Return the plan's view of a worker's Pod."""
    reason, message = _cause(pod)
    return Worker(
        name_of(pod),
        rank=_number(labels_of(pod).get(LABEL_RANK)),
        phase=_phase(pod),
        start=_number(annotations_of(pod).get(ANNOTATION_START)),
        reason=reason,
        message=one_line(message, LONGEST_MESSAGE),
    )


def make_worker(pod: Object, leader: Leader, spec: Workers, rank: int) -> Object:
    """Return the Pod of a worker.

    It runs the command of its leader, in the same image and with the same rights, on resources of its own. It has no
    label by which Knative's Services, Deployments or autoscalers would count it.
    """
    server = next(one for one in pod["spec"]["containers"] if one["name"] == CONTAINER)
    container = {name: copy.deepcopy(server[name]) for name in _OF_THE_CONTAINER if name in server}
    cpu = format_cores(spec.resources.cpu)
    container["args"] = [*container.get("args", ()), "--cpu", cpu]  # the last one counts
    given = {LEADER_VARIABLE: leader.address, RANK_VARIABLE: str(rank)}
    container["env"] = [
        *container.get("env", ()), *({"name": name, "value": value} for name, value in given.items())
    ]  # fmt: skip
    amounts = spec.resources.amounts()
    container["resources"] = {"requests": amounts, "limits": dict(amounts)}
    mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
    labels = {LABEL_GROUP_ROLE: WORKER, LABEL_GROUP: uid_of(pod), LABEL_RANK: str(rank)}
    made: Object = {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": worker_name(leader.name, rank),
            "namespace": namespace_of(pod),
            "labels": labels,
            "annotations": {ANNOTATION_START: str(leader.start)},
            "ownerReferences": [_owner(pod)],
        },
        "spec": {
            **{name: copy.deepcopy(pod["spec"][name]) for name in _OF_THE_POD if name in pod["spec"]},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE,
            "containers": [container],
            "volumes": [copy.deepcopy(one) for one in pod["spec"].get("volumes") or () if one["name"] in mounted],
        },
    }
    for part, queue in queue_metadata(*queue_of(pod)).items():
        made["metadata"][part] |= queue
    if spec.gang is not None:
        _join_gang(made, leader, spec, spec.gang)
    return made


def make_pod_group(pod: Object, spec: Workers) -> Object | None:
    """Return Volcano's PodGroup of a leader's workers; None without Volcano."""
    gang = spec.gang
    if gang is None or gang.scheduler != VOLCANO:
        return None
    metadata = {"name": name_of(pod), "namespace": namespace_of(pod), "ownerReferences": [_owner(pod)]}
    queue = {"queue": gang.queue} if gang.queue else {}
    return {
        "apiVersion": POD_GROUP.api_version,
        "kind": POD_GROUP.kind,
        "metadata": metadata,
        "spec": {"minMember": spec.count, **queue},
    }


def worker_name(leader: str, rank: int) -> str:
    """Return the name of a worker's Pod. It is fixed, so that two creations never make two Pods."""
    return f"{leader}-w{rank}"


def _join_gang(made: Object, leader: Leader, spec: Workers, gang: Gang) -> None:
    """Make a worker a member of the gang of all workers of its leader.

    The leader is no member: all replicas of a Revision have one Pod template, and so would be one gang.
    """
    metadata = made["metadata"]
    if gang.scheduler == VOLCANO:
        made["spec"]["schedulerName"] = VOLCANO
        metadata["annotations"][VOLCANO_GROUP] = leader.name
    else:
        group = f"{metadata['labels'][LABEL_GROUP]}-{leader.start}"  # names of Pods may be too long for a label
        metadata["labels"] |= {KUEUE_QUEUE: gang.queue, KUEUE_GROUP: group}
        metadata["annotations"][KUEUE_COUNT] = str(spec.count)


def _owner(leader: Object) -> Object:
    """Return the reference to the leader, which may be deleted before its workers."""
    return {**owner_reference(POD, leader), "blockOwnerDeletion": False}


def _container_status(pod: Object) -> Object:
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in found if one.get("name") == CONTAINER), {})


def _phase(pod: Object) -> Phase:
    if is_deleting(pod):
        return Phase.DELETED
    if has_ended(pod):
        return Phase.ENDED
    if is_ready(pod):
        return Phase.READY
    running = (pod.get("status") or {}).get("phase") == "Running"
    return Phase.RUNNING if running else Phase.WAITING


def _cause(pod: Object) -> tuple[str, str]:
    """Return reason and message of a Pod that waits or has ended; empty during a normal start."""
    return next(_causes(pod), ("", ""))


def _causes(pod: Object) -> Iterator[tuple[str, str]]:
    status = pod.get("status") or {}
    scheduled = condition_of(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False":
        yield str(scheduled.get("reason") or ""), str(scheduled.get("message") or "")
    state: dict[str, Any] = _container_status(pod).get("state") or {}
    if ended := state.get("terminated"):
        yield f"exit code {ended.get('exitCode')}", str(ended.get("message") or "")
    waiting = state.get("waiting") or {}
    if waiting.get("reason") and waiting["reason"] not in _ORDINARY_WAITS:
        yield str(waiting["reason"]), str(waiting.get("message") or "")
    if status.get("reason"):  # an evicted Pod
        yield str(status["reason"]), str(status.get("message") or "")


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0
