"""Whether code of an artifact may run: some formats run it, and a Namespace's label allows that. Pure."""

from __future__ import annotations

from clusters.base.objects import Object, labels_of
from serving.types.annotations import LABEL_ALLOW_CODE
from serving.types.faults import CODE_FORMATS

ALLOWED = "true"
"""The value of the label."""


def runs_code(model_format: str) -> bool:
    """Whether loading a model of this format may run whatever its author wrote; one that was found never does."""
    return model_format in CODE_FORMATS


def allows_code(namespace: Object | None) -> bool:
    """Whether the Namespace says so; one that is not there says nothing."""
    return namespace is not None and labels_of(namespace).get(LABEL_ALLOW_CODE) == ALLOWED


def refusal(model_format: str, namespace: str) -> str:
    """Why the format is refused in the namespace, and what helps."""
    return (
        f"{model_format} runs code of the artifact, and namespace {namespace} does not allow that: "
        f"`knodel namespace {namespace} --label {LABEL_ALLOW_CODE}={ALLOWED}` does (versions that run already go on)"
    )
