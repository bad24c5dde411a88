"""Revision objects for tests, as Knative would have made them."""

from __future__ import annotations

from clusters.base.objects import (
    LABEL_CONFIGURATION,
    LABEL_CONFIGURATION_GENERATION,
    REVISION,
    Object,
)
from serving.reconciler.rollout.versions import Version, versions_of
from serving.types.annotations import (
    ANNOTATION_STORAGE_URI,
    ANNOTATION_VARIANTS,
    ANNOTATION_VERSION,
    LABEL_GENERATION,
    LABEL_VARIANT,
)


def revision(
    number: int,
    ready: bool | None = True,
    *,
    configuration: str = "magika",
    generation: str = "",
    variants: str = "",
    message: str = "wrong digest",
) -> Object:
    """Revision `number` of a Configuration; `ready` None is under way. Each is made a second after the one before."""
    labels = {
        LABEL_CONFIGURATION: configuration,
        LABEL_CONFIGURATION_GENERATION: str(number),
        LABEL_GENERATION: generation or f"g{number}",
    }
    annotations = {ANNOTATION_VERSION: str(number), ANNOTATION_STORAGE_URI: f"file:///models/v{number}"}
    if variants:
        labels[LABEL_VARIANT] = configuration.rpartition("-")[2]
        annotations[ANNOTATION_VARIANTS] = variants
    status = {True: "True", False: "False", None: "Unknown"}[ready]
    words = {"reason": "ExitCode1", "message": message} if ready is False else {}
    return {
        "apiVersion": REVISION.api_version,
        "kind": REVISION.kind,
        "metadata": {
            "name": f"{configuration}-{number:05d}",
            "namespace": "default",
            "creationTimestamp": f"2026-01-01T00:00:{number:02d}Z",
            "labels": labels,
            "annotations": annotations,
        },
        "status": {"conditions": [{"type": "Ready", "status": status, **words}]},
    }


def versions(*ready: bool | None) -> tuple[Version, ...]:
    """Versions magika-00001, -00002, … without variants."""
    return versions_of(revision(index, state) for index, state in enumerate(ready, start=1))
