"""The rules of the preset `job`: kinds of training jobs on Kubernetes, their completion, and their annotations.

This module only contains data (`presets.py`). A job of another kind needs its own mapping.

Sources: kubernetes `batch/v1`; kubeflow/trainer `pkg/apis/trainer/v1alpha1` TrainJob; kubeflow/training-operator
`pkg/apis/kubeflow.org/v1` JobStatus; kubeflow/mpi-operator `v2beta1`; volcano `batch.volcano.sh/v1alpha1` JobState;
knative/eventing `pkg/adapter/apiserver/events` for the events of an ApiServerSource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from clusters.base.objects import Kind

SOURCE: Final = "/apis/jobs"
"""`source` of all events from jobs, whether received or listed: a uid is unique across clusters and time."""
RESOURCE_ADD: Final = "dev.knative.apiserver.resource.add"
RESOURCE_UPDATE: Final = "dev.knative.apiserver.resource.update"
"""Event types of an ApiServerSource with `mode: Resource`: the data is the object."""
REFERENCE_TYPES: Final = "dev.knative.apiserver.ref.*"
"""Event types of an ApiServerSource with `mode: Reference`, the default: the data only references the object."""

ANNOTATION_MODEL: Final = "knodel.dev/model"
"""Annotation of a job: the Model that it trains, in the job's namespace (`iris`)."""
ANNOTATION_STORAGE_URI: Final = "knodel.dev/storage-uri"
"""Annotation of a job: the storage URI of its result (`s3://models/iris/7/`)."""
ANNOTATION_DIGEST: Final = "knodel.dev/digest"
"""Annotation of a job: the result's digest, if known beforehand (`sha256:…`)."""
ANNOTATION_VERSION: Final = "knodel.dev/version"
"""Annotation of a job: the version label; default: the job's name, so that the next job with the same URI is a new
version."""
ANNOTATION_MODEL_FORMAT: Final = "knodel.dev/model-format"
"""Annotation of a job: the result's format (`onnx`)."""
ANNOTATION_METRICS: Final = "knodel.dev/metrics"
"""Annotation of a job: the result's metrics, as a JSON object (`{"accuracy": 0.98}`)."""


class JobKind(NamedTuple):
    """A kind of job. `completed`: a path that selects a node once the job has completed; `times`: paths to the time."""

    kind: Kind
    completed: str
    times: Sequence[str]


def _condition(type: str) -> str:
    return f"$.data.status.conditions[?@.type == '{type}' && @.status == 'True']"


_COMPLETION_TIME: Final = "$.data.status.completionTime"
_COMPLETE: Final = _condition("Complete")
_SUCCEEDED: Final = _condition("Succeeded")
_SUCCEEDED_TIMES: Final = (_COMPLETION_TIME, f"{_SUCCEEDED}.lastTransitionTime")


def _kubeflow(kind: str, version: str = "v1") -> JobKind:
    return JobKind(Kind("kubeflow.org", version, kind, f"{kind.lower()}s"), _SUCCEEDED, _SUCCEEDED_TIMES)


JOB_KINDS: Final = (
    JobKind(Kind("batch", "v1", "Job", "jobs"), _COMPLETE, (_COMPLETION_TIME, f"{_COMPLETE}.lastTransitionTime")),
    JobKind(
        Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
        _COMPLETE,
        (f"{_COMPLETE}.lastTransitionTime",),
    ),
    _kubeflow("PyTorchJob"),
    _kubeflow("TFJob"),
    _kubeflow("PaddleJob"),
    _kubeflow("XGBoostJob"),
    _kubeflow("JAXJob"),
    _kubeflow("MPIJob"),
    _kubeflow("MPIJob", "v2beta1"),
    JobKind(
        Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
        "$.data.status[?@.phase == 'Completed']",
        ("$.data.status.state.lastTransitionTime",),
    ),
)


def _annotation(name: str) -> str:
    return f"$.data.metadata.annotations['{name}']"


_RESULT: Final[Mapping[str, Any]] = {
    "source": SOURCE,
    "id": "$.data.metadata.uid",
    "model": _annotation(ANNOTATION_MODEL),
    "namespace": "$.data.metadata.namespace",
    "storageUri": _annotation(ANNOTATION_STORAGE_URI),
    "digest": _annotation(ANNOTATION_DIGEST),
    "version": [_annotation(ANNOTATION_VERSION), "$.data.metadata.name"],
    "modelFormat": _annotation(ANNOTATION_MODEL_FORMAT),
    "metrics": _annotation(ANNOTATION_METRICS),
}
_REFERENCE: Final = "the event only references the object: set `mode: Resource` of the ApiServerSource"


def _rule(job: JobKind) -> Mapping[str, Any]:
    of_kind = f"$[?@.apiVersion == '{job.kind.api_version}' && @.kind == '{job.kind.kind}']"
    return {
        **_RESULT,
        "types": [RESOURCE_ADD, RESOURCE_UPDATE],
        "when": [
            {"path": of_kind, "otherwise": "the object is not a job of a supported kind"},
            {"path": _RESULT["model"], "otherwise": f"the job has no annotation {ANNOTATION_MODEL}"},
            {"path": job.completed, "otherwise": "the job has not completed"},
        ],
        "time": list(job.times),
    }


JOB_RULES: Final[Sequence[Mapping[str, Any]]] = (
    *(_rule(job) for job in JOB_KINDS),
    {**_RESULT, "types": [REFERENCE_TYPES], "when": [{"path": "$.data.metadata.uid", "otherwise": _REFERENCE}]},
)
