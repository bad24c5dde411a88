"""Make and read the status of a Pod, as the kubelet of Kubernetes writes it. Pure.

A container is Waiting, Running or Terminated. `ready` and `started` are results of its probes. The Pod's conditions:

    PodScheduled      True; False with reason Unschedulable while the Pod waits for GPUs
    Initialized       True
    ContainersReady   True if the container is ready, else False with reason ContainersNotReady
    Ready             as ContainersReady; False with reason PodDeleting or NodeShutdown during termination
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from clusters.base.objects import (
    ANNOTATION_DEVICES,
    ANNOTATION_PORTS,
    ANNOTATION_PROCESS,
    Object,
    annotations_of,
    parse_timestamp,
    timestamp,
    uid_of,
    with_condition,
)
from clusters.embedded.kubelet.process.folders import ContainerRecord
from clusters.embedded.kubelet.process.process import ExitStatus
from clusters.net.endpoints import real_ports

SIGNAL_BASE: Final = 128  # plus the signal is the exit code of a killed process, as in shells and container runtimes
UNKNOWN_CODE: Final = 137  # exit code that Kubernetes writes with ContainerStatusUnknown
CRASH_LOOP: Final = "CrashLoopBackOff"
UNSCHEDULABLE: Final = "Unschedulable"
NODE_SHUTDOWN: Final = "NodeShutdown"
_OPTIONAL: Final = ("reason", "message", "podIP", "podIPs", "conditions", "containerStatuses")  # fields of a status


@dataclass(frozen=True, slots=True)
class Waiting:
    """The container is not running, for this reason."""

    reason: str
    message: str = ""


CREATING: Final = Waiting("ContainerCreating")
"""The state before the first start."""


@dataclass(frozen=True, slots=True)
class Running:
    """The container is running."""

    started_at: datetime


@dataclass(frozen=True, slots=True)
class Terminated:
    """The container has ended."""

    exit_code: int
    reason: str
    started_at: datetime
    finished_at: datetime
    signal: int | None = None
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether the exit code is not 0."""
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class ContainerState:
    """The fields of a container status."""

    state: Waiting | Running | Terminated = CREATING
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False


def terminated_state(
    status: ExitStatus, *, started_at: datetime, finished_at: datetime, message: str = "", out_of_memory: bool = False
) -> Terminated:
    """Return the state of a container whose process ended with this exit status."""
    if status.code is None and status.signal is None:
        message = message or "the exit status is unknown: the process ended while it was not observed"
        return Terminated(UNKNOWN_CODE, "ContainerStatusUnknown", started_at, finished_at, None, message)
    code = status.code if status.code is not None else SIGNAL_BASE + (status.signal or 0)
    reason = "OOMKilled" if out_of_memory else "Error" if code else "Completed"
    return Terminated(code, reason, started_at, finished_at, status.signal, message)


def make_status(
    pod: Object, container: ContainerState, *, phase: str, host_ip: str, now: datetime, termination_reason: str = ""
) -> Object:
    """Return the Pod's whole status. `termination_reason` is empty unless the Pod is being terminated."""
    former = pod.get("status") or {}
    ready = container.ready and isinstance(container.state, Running)
    status: Object = {
        "phase": phase,
        "conditions": _conditions(former, pod, ready, termination_reason, now),
        "hostIP": host_ip,
        "startTime": former.get("startTime") or timestamp(now),
        "containerStatuses": [_container_status(pod["spec"]["containers"][0], container, ready)],
    }
    if isinstance(container.state, Running) or former.get("podIP"):
        status["podIP"] = host_ip
        status["podIPs"] = [{"ip": host_ip}]
    return status


def make_unschedulable_status(pod: Object, message: str, now: datetime) -> Object:
    """Return the status of a Pod that waits for GPUs of the node."""
    former = (pod.get("status") or {}).get("conditions") or ()
    return {
        "phase": "Pending",
        "conditions": with_condition(former, "PodScheduled", "False", now, UNSCHEDULABLE, message),
    }


def make_failed_status(pod: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of a Pod that the node rejects: failed for good."""
    former = pod.get("status") or {}
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": former.get("startTime") or timestamp(now),
    }


def status_patch(pod: Object, status: Object) -> Object:
    """Return a merge patch that sets the status of this Pod, identified by its uid."""
    former = pod.get("status") or {}
    cleared = {name: None for name in _OPTIONAL if name in former and name not in status}
    return {"metadata": {"uid": uid_of(pod)}, "status": cleared | status}


def process_patch(pod: Object, node_name: str, record: ContainerRecord) -> Object:
    """Return a merge patch that records the Pod's node, real ports and process."""
    process = {name: value for name, value in record.to_json().items() if name != "ports"}
    annotations = {ANNOTATION_PORTS: json.dumps(dict(record.ports)), ANNOTATION_PROCESS: json.dumps(process)}
    return _binding_patch(pod, node_name, annotations)


def devices_patch(pod: Object, node_name: str, devices: str) -> Object:
    """Return a merge patch that records the GPUs that the Pod has on this node."""
    return _binding_patch(pod, node_name, {ANNOTATION_DEVICES: devices})


def _binding_patch(pod: Object, node_name: str, annotations: Mapping[str, str]) -> Object:
    patch: Object = {"metadata": {"uid": uid_of(pod), "annotations": annotations}}
    return patch if pod["spec"].get("nodeName") else patch | {"spec": {"nodeName": node_name}}


def read_container_state(pod: Object) -> ContainerState:
    """Return the container's state in the stored status, with which a new kubelet continues."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if not statuses:
        return ContainerState()
    status = statuses[0]
    return ContainerState(
        state=_read_state(status.get("state") or {}) or CREATING,
        last=_read_terminated((status.get("lastState") or {}).get("terminated")),
        restarts=int(status.get("restartCount", 0)),
        started=bool(status.get("started")),
        ready=bool(status.get("ready")),
    )


def _conditions(former: Object, pod: Object, ready: bool, termination_reason: str, now: datetime) -> list[Object]:
    name = pod["spec"]["containers"][0]["name"]
    not_ready = ("ContainersNotReady", f"containers with unready status: [{name}]")
    conditions: list[Object] = list(former.get("conditions") or ())
    for kind in ("PodScheduled", "Initialized"):
        conditions = with_condition(conditions, kind, "True", now)
    reason = ("", "") if ready else not_ready
    conditions = with_condition(conditions, "ContainersReady", "True" if ready else "False", now, *reason)
    if termination_reason:
        return with_condition(conditions, "Ready", "False", now, termination_reason, "the Pod is being terminated")
    return with_condition(conditions, "Ready", "True" if ready else "False", now, *reason)


def _container_status(spec: Object, container: ContainerState, ready: bool) -> Object:
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": container.started and isinstance(container.state, Running),
        "restartCount": container.restarts,
        "state": _state(container.state),
        "lastState": {} if container.last is None else _state(container.last),
    }


def _state(state: Waiting | Running | Terminated) -> Object:
    match state:
        case Waiting(reason, message):
            return {"waiting": _without_empty(reason=reason, message=message)}
        case Running(started_at):
            return {"running": {"startedAt": timestamp(started_at)}}
        case Terminated():
            return {
                "terminated": {"exitCode": state.exit_code}
                | _without_empty(reason=state.reason, message=state.message, signal=state.signal)
                | {"startedAt": timestamp(state.started_at), "finishedAt": timestamp(state.finished_at)}
            }


def _without_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _read_state(state: Object) -> Waiting | Running | Terminated | None:
    if "running" in state:
        return Running(parse_timestamp(state["running"]["startedAt"]))
    if "waiting" in state:
        return Waiting(str(state["waiting"].get("reason", "")), str(state["waiting"].get("message", "")))
    return _read_terminated(state.get("terminated"))


def _read_terminated(record: Object | None) -> Terminated | None:
    if not record:
        return None
    return Terminated(
        exit_code=int(record["exitCode"]),
        reason=str(record.get("reason", "")),
        started_at=parse_timestamp(record["startedAt"]),
        finished_at=parse_timestamp(record["finishedAt"]),
        signal=record.get("signal"),
        message=str(record.get("message", "")),
    )


def read_container_record(pod: Object) -> ContainerRecord | None:
    """Return the process recorded in the Pod's annotations, None when there is none."""
    record = ContainerRecord.parse(annotations_of(pod).get(ANNOTATION_PROCESS, ""))
    return None if record is None else replace(record, ports=real_ports(pod))
