"""The subjects of starts from zero: one model with Knative's own class, and with Knodel's class without and with a warm
pool.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from clusters.base.objects import ANNOTATION_CLASS, MODEL, SERVICE, WARM_POOL, Object
from serving.makers.pod_spec import make_revision_spec
from serving.types.settings.settings import Settings
from serving.types.validation import read_model

KNATIVE_CLASS = "kpa.autoscaling.knative.dev"
NAME = "magika"
RUN = secrets.token_hex(3)
"""Suffix of namespaces, since those of the last run may still be terminating."""
RESOURCES = {"cpu": "100m", "memory": "256Mi"}
POOL = "bench"
POOL_SIZE = 2
SHORTEST_WINDOW = "6s"
"""Knative's shortest stable window, with which its Service scales to zero soonest."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject. Each has a namespace of its own, since a pool serves its whole namespace."""

    label: str
    namespace: str

    @property
    def pods(self) -> str:
        """Label selector of its replicas."""
        return f"serving.knative.dev/configuration={NAME}"


SUBJECTS = (
    Subject("Knative's class, cold", f"bench-kpa-{RUN}"),
    Subject("Knodel's class, cold", f"bench-cold-{RUN}"),
    Subject("Knodel's class, warm", f"bench-warm-{RUN}"),
)
KPA, COLD, WARM = SUBJECTS


def model(subject: Subject, uri: str, **spec: Any) -> Object:
    """Return the Model of Knodel's subjects."""
    return {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": NAME, "namespace": subject.namespace},
        "spec": {"storageUri": uri, "resources": RESOURCES, "maxReplicas": 1, "scaleToZeroAfter": "1s", **spec},
    }


def knative_service(subject: Subject, uri: str, settings: Settings) -> Object:
    """Return the same container as a Knative Service of Knative's own class."""
    read = read_model(model(subject, uri))
    annotations = {
        ANNOTATION_CLASS: KNATIVE_CLASS,
        "autoscaling.knative.dev/max-scale": "1",
        "autoscaling.knative.dev/window": SHORTEST_WINDOW,
    }
    template = {"metadata": {"annotations": annotations}, "spec": make_revision_spec(read, None, settings.server)}
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {"name": NAME, "namespace": subject.namespace},
        "spec": {"template": template},
    }


def pool(subject: Subject, size: int) -> Object:
    """Return a warm pool for the Model."""
    return {
        "apiVersion": WARM_POOL.api_version,
        "kind": WARM_POOL.kind,
        "metadata": {"name": POOL, "namespace": subject.namespace},
        "spec": {"template": {"resources": RESOURCES}, "size": size},
    }
