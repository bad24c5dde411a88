"""Pure makers of Pod status, as the real kubelet writes it.

A container is Waiting, Running or Terminated. `ready` and `started` follow its probes. The Pod's conditions:

    PodScheduled      True
    Initialized       True
    ContainersReady   True when the container is ready, else False, ContainersNotReady
    Ready             as ContainersReady; False, PodDeleting or NodeShutdown, once the Pod is to end
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from clusters.base.objects import (
    ANNOTATION_PORTS,
    ANNOTATION_PROCESS,
    Object,
    annotations_of,
    parse_timestamp,
    timestamp,
    uid_of,
    with_condition,
)
from clusters.embedded.kubelet.process.folders import Run
from clusters.embedded.kubelet.process.process import Exit
from clusters.net.endpoints import real_ports

KILLED: Final = 128  # is added to a signal's number to give an exit code, as shells and container runtimes do
UNKNOWN_CODE: Final = 137  # what Kubernetes writes for a container that ended unseen (ContainerStatusUnknown)
CRASH_LOOP: Final = "CrashLoopBackOff"
NODE_SHUTDOWN: Final = "NodeShutdown"
_OPTIONAL: Final = ("reason", "message")  # of a status: null removes them in a merge patch


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not started, and why."""

    reason: str
    message: str = ""


CREATING: Final = Waiting("ContainerCreating")
"""Before its first start."""


@dataclass(frozen=True, slots=True)
class Running:
    """Running since then."""

    started_at: datetime


@dataclass(frozen=True, slots=True)
class Terminated:
    """Ended, and how."""

    exit_code: int
    reason: str
    started_at: datetime
    finished_at: datetime
    signal: int | None = None
    message: str = ""

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than well."""
        return self.exit_code != 0


@dataclass(frozen=True, slots=True)
class ContainerState:
    """All that the status tells of a container."""

    state: Waiting | Running | Terminated = CREATING
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False


def terminated(
    exit: Exit, *, started_at: datetime, finished_at: datetime, message: str = "", out_of_memory: bool = False
) -> Terminated:
    """How a container ended, from how its process did."""
    if exit.code is None and exit.signal is None:
        message = message or "how the process ended is not known: it ended while nobody watched it"
        return Terminated(UNKNOWN_CODE, "ContainerStatusUnknown", started_at, finished_at, None, message)
    code = exit.code if exit.code is not None else KILLED + (exit.signal or 0)
    reason = "OOMKilled" if out_of_memory else "Error" if code else "Completed"
    return Terminated(code, reason, started_at, finished_at, exit.signal, message)


def make_status(
    pod: Object, container: ContainerState, *, phase: str, host_ip: str, now: datetime, ending: str = ""
) -> Object:
    """The Pod's whole status; `ending` is the reason for which it is about to end, empty while it is not."""
    former = pod.get("status") or {}
    ready = container.ready and isinstance(container.state, Running)
    status: Object = {
        "phase": phase,
        "conditions": _conditions(former, pod, ready, ending, now),
        "hostIP": host_ip,
        "startTime": former.get("startTime") or timestamp(now),
        "containerStatuses": [_container_status(pod["spec"]["containers"][0], container, ready)],
    }
    if isinstance(container.state, Running) or former.get("podIP"):
        status["podIP"] = host_ip
        status["podIPs"] = [{"ip": host_ip}]
    return status


def make_failed_status(pod: Object, reason: str, message: str, now: datetime) -> Object:
    """The status of a Pod that this node does not take: failed for good."""
    former = pod.get("status") or {}
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": former.get("startTime") or timestamp(now),
    }


def status_patch(pod: Object, status: Object) -> Object:
    """A merge patch that gives this very Pod (by uid) that status."""
    absent = dict.fromkeys((*_OPTIONAL, "podIP", "podIPs", "conditions", "containerStatuses"))
    former = pod.get("status") or {}
    cleared = {name: value for name, value in absent.items() if name in former and name not in status}
    return {"metadata": {"uid": uid_of(pod)}, "status": cleared | status}


def process_patch(pod: Object, node_name: str, run: Run) -> Object:
    """A merge patch that tells where the Pod runs: on which node, which ports, which process."""
    process = {name: value for name, value in run.to_json().items() if name != "ports"}
    annotations = {ANNOTATION_PORTS: json.dumps(dict(run.ports)), ANNOTATION_PROCESS: json.dumps(process)}
    patch: Object = {"metadata": {"uid": uid_of(pod), "annotations": annotations}}
    return patch if pod["spec"].get("nodeName") else patch | {"spec": {"nodeName": node_name}}


def read_container(pod: Object) -> ContainerState:
    """What the stored status says of the container: where a new kubelet goes on."""
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


def _conditions(former: Object, pod: Object, ready: bool, ending: str, now: datetime) -> list[Object]:
    name = pod["spec"]["containers"][0]["name"]
    not_ready = ("ContainersNotReady", f"containers with unready status: [{name}]")
    conditions: list[Object] = list(former.get("conditions") or ())
    for kind in ("PodScheduled", "Initialized"):
        conditions = with_condition(conditions, kind, "True", now)
    why = ("", "") if ready else not_ready
    conditions = with_condition(conditions, "ContainersReady", "True" if ready else "False", now, *why)
    if ending:
        return with_condition(conditions, "Ready", "False", now, ending, "the Pod is about to end")
    return with_condition(conditions, "Ready", "True" if ready else "False", now, *why)


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


def recorded_run(pod: Object) -> Run | None:
    """The process that the Pod's annotations tell of."""
    run = Run.parse(annotations_of(pod).get(ANNOTATION_PROCESS, ""))
    return None if run is None else replace(run, ports=real_ports(pod))
