"""Statuses of training jobs, written by hand to the schemas of their kinds (`test_job_definitions.py`)."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import Object
from eventing.mapping.jobs import JOB_KINDS, JobKind

COMPLETED = "2026-01-01T12:00:00Z"
EARLIER = "2026-01-01T11:00:00Z"
ANNOTATIONS = {"knodel.dev/model": "iris", "knodel.dev/storage-uri": "s3://models/iris/7/"}
KINDS = {f"{job.kind.kind} of {job.kind.api_version}": job for job in JOB_KINDS}


def job_of(job: JobKind, status: Object, **metadata: Any) -> Object:
    """Return an object of that kind."""
    known = {"name": "train-iris-7", "namespace": "ml", "uid": "8f2b", "annotations": dict(ANNOTATIONS)}
    return {"apiVersion": job.kind.api_version, "kind": job.kind.kind, "metadata": known | metadata, "status": status}


def completed(job: JobKind) -> Object:
    """Return the `status` of a completed job."""
    match job.kind.group:
        case "batch":
            return {
                "conditions": [
                    _condition("SuccessCriteriaMet", "True", EARLIER),
                    _condition("Complete", "True", COMPLETED),
                ],
                "startTime": EARLIER,
                "completionTime": COMPLETED,
                "succeeded": 1,
                "terminating": 0,
                "ready": 0,
            }
        case "trainer.kubeflow.org":
            trained = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
            return {"conditions": [_condition("Complete", "True", COMPLETED)], "jobsStatus": [trained]}
        case "kubeflow.org":
            return {
                "conditions": [
                    _condition("Created", "True", EARLIER),
                    _condition("Running", "False", COMPLETED),
                    _condition("Succeeded", "True", COMPLETED),
                ],
                "replicaStatuses": {"Worker": {"succeeded": 2}},
                "startTime": EARLIER,
                "completionTime": COMPLETED,
            }
    return _volcano("Completed", COMPLETED)


def running(job: JobKind) -> Object:
    """Return the `status` of a running job; a running TrainJob has none."""
    match job.kind.group:
        case "batch":
            return {"startTime": EARLIER, "active": 1, "ready": 1}
        case "trainer.kubeflow.org":
            return {}
        case "kubeflow.org":
            return {"conditions": [_condition("Created", "True", EARLIER), _condition("Running", "True", EARLIER)]}
    return _volcano("Running", EARLIER)


def failed(job: JobKind) -> Object:
    """Return the `status` of a failed job."""
    if job.kind.group == "batch.volcano.sh":
        return _volcano("Failed", COMPLETED)
    succeeded = "Succeeded" if job.kind.group == "kubeflow.org" else "Complete"
    return {"conditions": [_condition(succeeded, "False", COMPLETED), _condition("Failed", "True", COMPLETED)]}


def _condition(type: str, status: str, at: str) -> Object:
    return {"type": type, "status": status, "lastTransitionTime": at, "reason": "Because", "message": "it is so"}


def _volcano(phase: str, at: str) -> Object:
    return {
        "state": {"phase": phase, "lastTransitionTime": at},
        "minAvailable": 1,
        "succeeded": 1,
        "conditions": [
            {"status": "Pending", "lastTransitionTime": EARLIER},
            {"status": phase, "lastTransitionTime": at},
        ],
    }
