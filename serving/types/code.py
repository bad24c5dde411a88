"""Whether an artifact's code may run: some model formats run it, and a label of the Namespace allows that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.base.objects import Object, labels_of
from serving.types.annotations import LABEL_ALLOW_CODE
from serving.types.faults import CODE_FORMATS
from serving.types.ray import has_service

ALLOWED = "true"
"""The value of the label."""


def runs_code(model_format: str) -> bool:
    """Return whether loading a model of this format may run code of its author. A detected format never does."""
    return model_format in CODE_FORMATS


def code_format(spec: Mapping[str, Any]) -> str:
    """Return the format of a Model by its spec, as written, if it runs code of the artifact; else an empty text.

    A service that serves the model runs its code elsewhere.
    """
    model_format = str(spec.get("modelFormat") or "")
    return model_format if runs_code(model_format) and not has_service(spec) else ""


def allows_code(namespace: Object | None) -> bool:
    """Return whether the label of the Namespace allows code; False for one that does not exist."""
    return namespace is not None and labels_of(namespace).get(LABEL_ALLOW_CODE) == ALLOWED


def refusal(model_format: str, namespace: str) -> str:
    """Return why the format is refused in the namespace, with the remedy."""
    return (
        f"{model_format} runs code of the artifact, which namespace {namespace} does not allow: to allow it, run "
        f"`knodel namespace {namespace} --label {LABEL_ALLOW_CODE}={ALLOWED}` (running versions are not affected)"
    )
