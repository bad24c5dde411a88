"""Training jobs on Kubernetes: their kinds, how each says that it has completed, what annotations tell of its result.

Data alone: the rules of the preset `job` (`presets.py`). A job of another kind needs a mapping of its own.

Sources: kubernetes `batch/v1`; kubeflow/trainer `pkg/apis/trainer/v1alpha1` TrainJob; kubeflow/training-operator
`pkg/apis/kubeflow.org/v1` JobStatus; kubeflow/mpi-operator `v2beta1`; volcano `batch.volcano.sh/v1alpha1` JobState;
knative/eventing `pkg/adapter/apiserver/events` for what an ApiServerSource makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from clusters.base.objects import Kind

SOURCE: Final = "/apis/jobs"
"""`source` of the effect, however the job's end came to us: a uid is unique in space and time."""
RESOURCE_ADD: Final = "dev.knative.apiserver.resource.add"
RESOURCE_UPDATE: Final = "dev.knative.apiserver.resource.update"
"""Types of an ApiServerSource with `mode: Resource`: its data is the object."""
REFERENCE_TYPES: Final = "dev.knative.apiserver.ref.*"
"""Of one with `mode: Reference`, its default: its data only names the object."""

ANNOTATION_MODEL: Final = "knodel.dev/model"
"""On a job: the Model that it trains, in the job's own namespace (`iris`)."""
ANNOTATION_STORAGE_URI: Final = "knodel.dev/storage-uri"
"""On a job: where its result lies (`s3://models/iris/7/`)."""
ANNOTATION_DIGEST: Final = "knodel.dev/digest"
"""On a job: the result's digest, where it is known beforehand (`sha256:…`)."""
ANNOTATION_VERSION: Final = "knodel.dev/version"
"""On a job: the version for people; absent: the job's name, so that a next job at the same address is a new version."""
ANNOTATION_MODEL_FORMAT: Final = "knodel.dev/model-format"
"""On a job: the result's format (`onnx`)."""
ANNOTATION_METRICS: Final = "knodel.dev/metrics"
"""On a job: what was measured, as a JSON object (`{"accuracy": 0.98}`)."""


class JobKind(NamedTuple):
    """A kind of job: `completed` is a path that selects something once it has, `times` are paths to when it did."""

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
_REFERENCE: Final = "the event only names the object: set `mode: Resource` of the ApiServerSource"


def _rule(job: JobKind) -> Mapping[str, Any]:
    of_kind = f"$[?@.apiVersion == '{job.kind.api_version}' && @.kind == '{job.kind.kind}']"
    return {
        **_RESULT,
        "types": [RESOURCE_ADD, RESOURCE_UPDATE],
        "when": [
            {"path": of_kind, "otherwise": "the object is no job of a kind that is known here"},
            {"path": _RESULT["model"], "otherwise": f"the job has no annotation {ANNOTATION_MODEL}"},
            {"path": job.completed, "otherwise": "the job has not completed"},
        ],
        "time": list(job.times),
    }


JOB_RULES: Final[Sequence[Mapping[str, Any]]] = (
    *(_rule(job) for job in JOB_KINDS),
    {**_RESULT, "types": [REFERENCE_TYPES], "when": [{"path": "$.data.metadata.uid", "otherwise": _REFERENCE}]},
)
