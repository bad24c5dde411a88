"""Elastic jobs: how the size of each kind of training job is read and changed. Pure.

A job takes part by an annotation with its smallest and largest number of workers:

    autoscaling.knodel.dev/elastic: '{"min": 2, "max": 60}'

    Job          parallelism; of an Indexed Job whose completions are equal, both
    PyTorchJob,
    PaddleJob    replicas of the workers
    Volcano Job  replicas of a task: that of `"task"`, else `worker`, else the last; minAvailable stays possible
    RayCluster   replicas of a worker group: that of `"group"`, else the last; with Ray's autoscaler, its maximum

A Job that cannot change its size has `{"suspendable": true}`: it runs as a whole, or is suspended. An annotation marks
that it was suspended here, so a Job that a user or another controller has suspended is left alone. Workers of Jobs that
Kueue manages change only if the Job is elastic for Kueue, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard

from clusters.base.objects import Kind, Object, annotations_of, condition_of, labels_of

ANNOTATION_ELASTIC: Final = "autoscaling.knodel.dev/elastic"
ANNOTATION_SUSPENDED: Final = "autoscaling.knodel.dev/suspended"
"""On a Job: `true` while it is suspended because serving needs its GPUs."""
LABEL_KUEUE: Final = "kueue.x-k8s.io/queue-name"
ANNOTATION_KUEUE: Final = "kueue.x-k8s.io/elastic-job"
MOST: Final = 100_000
"""Workers of a job."""

JOB: Final = Kind("batch", "v1", "Job", "jobs")
PYTORCH_JOB: Final = Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
PADDLE_JOB: Final = Kind("kubeflow.org", "v1", "PaddleJob", "paddlejobs")
VOLCANO_JOB: Final = Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs")
RAY_CLUSTER: Final = Kind("ray.io", "v1", "RayCluster", "rayclusters")
ELASTIC_KINDS: Final = (JOB, PYTORCH_JOB, PADDLE_JOB, VOLCANO_JOB, RAY_CLUSTER)

_REPLICA_SPECS: Final[Mapping[Kind, str]] = {PYTORCH_JOB: "pytorchReplicaSpecs", PADDLE_JOB: "paddleReplicaSpecs"}
_ENDED: Final = ("Complete", "Succeeded", "Failed")
"""Conditions of Jobs and of the training operator's jobs that have ended."""
_ENDED_PHASES: Final = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases of Volcano's Jobs that have ended or were stopped by a command."""

Patch = Mapping[str, Any] | list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """The workers of a job: how many there should be now, their bounds, and the template of their Pods.

    `pods`: Pods of each worker. `over`: the job has ended, or was suspended by a user or another controller.
    """

    kind: Kind
    object: Object
    size: int
    least: int
    most: int
    template: Object
    over: bool = False
    pods: int = 1
    part: int = -1
    """Index of the task or worker group."""
    suspends: bool = False

    @property
    def patch_type(self) -> Literal["merge", "json"]:
        """The type of `patch`."""
        return "json" if self.part >= 0 else "merge"

    def patch(self, size: int) -> Patch:
        """Return the patch that changes the number of workers to `size`."""
        if self.suspends:
            mark = {ANNOTATION_SUSPENDED: None if size else "true"}
            return {"metadata": {"annotations": mark}, "spec": {"suspend": size == 0}}
        if self.kind == VOLCANO_JOB:
            return _volcano_patch(self.object["spec"], self.part, size)
        if self.kind == RAY_CLUSTER:
            return _ray_patch(self.object["spec"], self.part, size)
        if self.kind in _REPLICA_SPECS:
            return {"spec": {_REPLICA_SPECS[self.kind]: {"Worker": {"replicas": size}}}}
        both = {"parallelism": size, "completions": size}
        return {"spec": both if _has_as_many_completions(self.object["spec"]) else {"parallelism": size}}


def read_job(kind: Kind, obj: Object) -> ElasticJob | None:
    """Return the workers of a job with a valid annotation; None for another one.

    Example:
        job = read_job(JOB, obj)     # {"min": 2, "max": 60}, parallelism 15
        job.size, job.most           # (15, 60)
        job.patch(10)                # {"spec": {"parallelism": 10}}
    """
    found = _read(kind, obj) if ANNOTATION_ELASTIC in annotations_of(obj) else None
    return found if isinstance(found, ElasticJob) else None


def elastic_fault(kind: Kind, obj: Object) -> str:
    """Return why the annotation of a job has no effect; empty if it has, or is absent."""
    found = _read(kind, obj) if ANNOTATION_ELASTIC in annotations_of(obj) else None
    return found if isinstance(found, str) else ""


def _read(kind: Kind, obj: Object) -> ElasticJob | str:
    """Return the workers, or what is wrong."""
    try:
        given = json.loads(annotations_of(obj)[ANNOTATION_ELASTIC])
    except (ValueError, RecursionError):
        return _wrong("is not JSON")
    if not isinstance(given, dict):
        return _wrong("is not a JSON object")
    spec = obj.get("spec") or {}
    if given.get("suspendable") is True:
        return _suspendable(kind, obj)
    least, most = given.get("min"), given.get("max")
    if not _is_count(least) or not _is_count(most) or not least <= most:
        return _wrong(f"needs whole numbers min and max with 0 <= min <= max <= {MOST}")
    if LABEL_KUEUE in labels_of(obj) and annotations_of(obj).get(ANNOTATION_KUEUE) != "true":
        return f"Kueue decides the size of this job: add the annotation {ANNOTATION_KUEUE}: 'true'"
    try:
        return _workers(kind, obj, spec, given, (least, most))
    except (KeyError, IndexError, TypeError, ValueError):
        return _wrong("names no workers that the job has")


def _workers(kind: Kind, obj: Object, spec: Object, given: Mapping[str, Any], bounds: tuple[int, int]) -> ElasticJob:
    """Return the workers of a job. Raises KeyError, IndexError, TypeError, ValueError for unknown ones."""
    over = _is_over(kind, obj)
    if kind == VOLCANO_JOB:
        part = _index(spec["tasks"], "name", given.get("task"), "worker")
        task = spec["tasks"][part]
        return ElasticJob(kind, obj, int(task.get("replicas", 1)), *bounds, task["template"], over, part=part)
    if kind == RAY_CLUSTER:
        part = _index(spec["workerGroupSpecs"], "groupName", given.get("group"))
        group = spec["workerGroupSpecs"][part]
        size = int(group["maxReplicas"] if spec.get("enableInTreeAutoscaling") else group.get("replicas", 0))
        pods = int(group.get("numOfHosts") or 1)
        return ElasticJob(kind, obj, size, *bounds, group["template"], over, pods, part)
    if kind in _REPLICA_SPECS:
        workers = spec[_REPLICA_SPECS[kind]]["Worker"]
        return ElasticJob(kind, obj, int(workers.get("replicas", 1)), *bounds, workers["template"], over)
    return ElasticJob(kind, obj, int(spec.get("parallelism", 1)), *bounds, spec["template"], over)


def _suspendable(kind: Kind, obj: Object) -> ElasticJob | str:
    """Return a Job that runs as a whole or not at all: one worker of many Pods."""
    if kind != JOB:
        return _wrong("has suspendable, which only Jobs of batch/v1 can be: give min and max")
    spec = obj["spec"]
    is_suspended, by_us = spec.get("suspend") is True, annotations_of(obj).get(ANNOTATION_SUSPENDED) == "true"
    over = _is_over(kind, obj) or (is_suspended and not by_us)
    pods = max(1, int(spec.get("parallelism", 1)))
    return ElasticJob(kind, obj, 0 if is_suspended else 1, 0, 1, spec["template"], over, pods, suspends=True)


def _is_over(kind: Kind, obj: Object) -> bool:
    if kind == VOLCANO_JOB:
        return ((obj.get("status") or {}).get("state") or {}).get("phase") in _ENDED_PHASES
    spec = obj.get("spec") or {}
    is_suspended = spec.get("suspend") is True or (spec.get("runPolicy") or {}).get("suspend") is True
    has_ended = any((condition_of(obj, name) or {}).get("status") == "True" for name in _ENDED)
    return has_ended or (is_suspended and annotations_of(obj).get(ANNOTATION_SUSPENDED) != "true")


def _volcano_patch(spec: Object, part: int, size: int) -> list[dict[str, Any]]:
    """Return the patch. Volcano refuses a minAvailable above the number of all Pods."""
    task = spec["tasks"][part]
    others = sum(int(one.get("replicas", 1)) for index, one in enumerate(spec["tasks"]) if index != part)
    patch = [
        {"op": "test", "path": f"/spec/tasks/{part}/name", "value": task.get("name")},
        {"op": "replace", "path": f"/spec/tasks/{part}/replicas", "value": size},
    ]
    if int(task.get("minAvailable") or 0) > size:
        patch.append({"op": "replace", "path": f"/spec/tasks/{part}/minAvailable", "value": size})
    if int(spec.get("minAvailable") or 0) > others + size:
        patch.append({"op": "replace", "path": "/spec/minAvailable", "value": others + size})
    return patch


def _ray_patch(spec: Object, part: int, size: int) -> list[dict[str, Any]]:
    """Return the patch. Ray's autoscaler changes the replicas itself, up to the maximum."""
    group, path = spec["workerGroupSpecs"][part], f"/spec/workerGroupSpecs/{part}"
    field = "maxReplicas" if spec.get("enableInTreeAutoscaling") else "replicas"
    return [
        {"op": "test", "path": f"{path}/groupName", "value": group.get("groupName")},
        {"op": "add", "path": f"{path}/{field}", "value": size},
    ]


def _has_as_many_completions(spec: Object) -> bool:
    """Return whether an Indexed Job has as many completions as workers; only then both may change, together."""
    return spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism", 1)


def _index(parts: list[Object], field: str, name: str | None, usual: str = "") -> int:
    """Return the index of the part with this name, else with the usual one, else the last. Raises ValueError."""
    names = [one.get(field) for one in parts]
    if name is not None:
        return names.index(name)
    return names.index(usual) if usual in names else range(len(names))[-1]


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _wrong(fault: str) -> str:
    return f'annotation {ANNOTATION_ELASTIC} {fault}: write \'{{"min": 2, "max": 60}}\''
