"""Elastic jobs: their size is read, and changed by a patch that the API server and the job's controller accept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscaler.gpu.elastic import (
    ANNOTATION_ELASTIC,
    ANNOTATION_SUSPENDED,
    JOB,
    PADDLE_JOB,
    PYTORCH_JOB,
    RAY_CLUSTER,
    VOLCANO_JOB,
    elastic_fault,
    read_job,
)
from clusters.base.objects import Kind

TEMPLATE = {"spec": {"containers": [{"name": "worker"}]}}


def job(spec: dict[str, Any], elastic: Any = None, status: Any = None, **annotations: str) -> dict[str, Any]:
    given = {"min": 2, "max": 60} if elastic is None else elastic
    text = given if isinstance(given, str) else json.dumps(given)
    metadata = {"namespace": "team", "name": "train", "annotations": {ANNOTATION_ELASTIC: text, **annotations}}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


VOLCANO = {
    "minAvailable": 12,
    "tasks": [
        {"name": "ps", "replicas": 2, "template": {}},
        {"name": "worker", "replicas": 10, "template": TEMPLATE, "minAvailable": 8},
    ],
}
RAY = {
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 3, "maxReplicas": 9, "template": {}},
        {"groupName": "large", "replicas": 4, "maxReplicas": 8, "numOfHosts": 2, "template": TEMPLATE},
    ]
}


@pytest.mark.parametrize(
    ("kind", "spec", "size", "patch"),
    [
        (JOB, {"parallelism": 15, "template": TEMPLATE}, 15, {"spec": {"parallelism": 5}}),
        (
            JOB,
            {"parallelism": 15, "completions": 15, "completionMode": "Indexed", "template": TEMPLATE},
            15,
            {"spec": {"parallelism": 5, "completions": 5}},
        ),
        (
            JOB,
            {"parallelism": 15, "completions": 100, "completionMode": "Indexed", "template": TEMPLATE},
            15,
            {"spec": {"parallelism": 5}},
        ),
        (
            PYTORCH_JOB,
            {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7, "template": TEMPLATE}}},
            7,
            {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}},
        ),
        (
            PADDLE_JOB,
            {"paddleReplicaSpecs": {"Worker": {"replicas": 7, "template": TEMPLATE}}},
            7,
            {"spec": {"paddleReplicaSpecs": {"Worker": {"replicas": 5}}}},
        ),
        (
            VOLCANO_JOB,
            VOLCANO,
            10,
            [
                {"op": "test", "path": "/spec/tasks/1/name", "value": "worker"},
                {"op": "replace", "path": "/spec/tasks/1/replicas", "value": 5},
                {"op": "replace", "path": "/spec/tasks/1/minAvailable", "value": 5},
                {"op": "replace", "path": "/spec/minAvailable", "value": 7},
            ],
        ),
        (
            RAY_CLUSTER,
            RAY,
            4,
            [
                {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "large"},
                {"op": "add", "path": "/spec/workerGroupSpecs/1/replicas", "value": 5},
            ],
        ),
    ],
)
def test_each_kind_has_its_size_and_its_patch(kind: Kind, spec: dict[str, Any], size: int, patch: Any) -> None:
    found = read_job(kind, job(spec))
    assert found is not None
    assert (found.size, found.least, found.most, found.template) == (size, 2, 60, TEMPLATE)
    assert found.patch(5) == patch
    assert found.patch_type == ("json" if isinstance(patch, list) else "merge")
    assert not found.over


def test_growth_leaves_the_minimum_of_a_volcano_job() -> None:
    found = read_job(VOLCANO_JOB, job(VOLCANO))
    assert found is not None
    assert [one["path"] for one in found.patch(20)] == ["/spec/tasks/1/name", "/spec/tasks/1/replicas"]  # type: ignore[index]


def test_a_part_is_chosen_by_its_name() -> None:
    found = read_job(RAY_CLUSTER, job(RAY, {"min": 0, "max": 9, "group": "small"}))
    assert found is not None
    assert (found.size, found.pods) == (3, 1)


def test_rays_own_autoscaler_gets_another_maximum() -> None:
    found = read_job(RAY_CLUSTER, job({**RAY, "enableInTreeAutoscaling": True}))
    assert found is not None
    assert (found.size, found.pods) == (8, 2)
    assert found.patch(3)[1] == {"op": "add", "path": "/spec/workerGroupSpecs/1/maxReplicas", "value": 3}  # type: ignore[index]


def test_a_suspendable_job_runs_as_a_whole_or_not_at_all() -> None:
    running = read_job(JOB, job({"parallelism": 4, "template": TEMPLATE}, {"suspendable": True}))
    assert running is not None
    assert (running.size, running.least, running.most, running.pods) == (1, 0, 1, 4)
    assert running.patch(0) == {"metadata": {"annotations": {ANNOTATION_SUSPENDED: "true"}}, "spec": {"suspend": True}}
    suspended = {"parallelism": 4, "suspend": True, "template": TEMPLATE}
    ours = read_job(JOB, job(suspended, {"suspendable": True}, **{ANNOTATION_SUSPENDED: "true"}))
    assert ours is not None
    assert (ours.size, ours.over) == (0, False)
    assert ours.patch(1) == {"metadata": {"annotations": {ANNOTATION_SUSPENDED: None}}, "spec": {"suspend": False}}
    theirs = read_job(JOB, job(suspended, {"suspendable": True}))
    assert theirs is not None
    assert theirs.over


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        (JOB, {"template": TEMPLATE}, {"conditions": [{"type": "Complete", "status": "True"}]}),
        (JOB, {"template": TEMPLATE, "suspend": True}, {}),
        (VOLCANO_JOB, VOLCANO, {"state": {"phase": "Aborted"}}),
        (
            PYTORCH_JOB,
            {"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}, "runPolicy": {"suspend": True}},
            {},
        ),
    ],
)
def test_a_job_that_has_ended_or_was_suspended_needs_nothing(kind: Kind, spec: Any, status: Any) -> None:
    found = read_job(kind, job(spec, status=status))
    assert found is not None
    assert found.over


@pytest.mark.parametrize(
    ("elastic", "fault"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ({"min": 2}, "needs whole numbers min and max"),
        ({"min": 3, "max": 2}, "needs whole numbers min and max"),
        ({"min": True, "max": 2}, "needs whole numbers min and max"),
        ({"min": -1, "max": 2}, "needs whole numbers min and max"),
        ({"min": 1, "max": 2, "task": "none"}, "names no workers that the job has"),
        ({"suspendable": True}, "only Jobs of batch/v1"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_faulty_annotation_has_no_effect_and_is_reported(elastic: Any, fault: str) -> None:
    obj = job(VOLCANO, elastic)
    assert read_job(VOLCANO_JOB, obj) is None
    assert fault in elastic_fault(VOLCANO_JOB, obj)


def test_a_job_of_kueue_must_be_elastic_there_too() -> None:
    obj = job({"template": TEMPLATE})
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "training"}
    assert "kueue.x-k8s.io/elastic-job" in elastic_fault(JOB, obj)
    obj["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = "true"
    assert read_job(JOB, obj) is not None


def test_another_job_takes_no_part() -> None:
    obj = {"metadata": {"name": "train"}, "spec": {"template": TEMPLATE}}
    assert read_job(JOB, obj) is None
    assert elastic_fault(JOB, obj) == ""
