"""What is started from zero: one model behind Knative's own class, ours without a pool, and ours with one."""

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
"""In the names of namespaces: those of the run before may still be going."""
RESOURCES = {"cpu": "100m", "memory": "256Mi"}
POOL = "bench"
POOL_SIZE = 2
SHORTEST_WINDOW = "6s"
"""Knative's least stable window: its Service goes to zero soonest by it."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One way to start; each has a namespace of its own, since a pool serves all of its namespace."""

    label: str
    namespace: str

    @property
    def pods(self) -> str:
        """Selector of its replicas."""
        return f"serving.knative.dev/configuration={NAME}"


SUBJECTS = (
    Subject("Knative's class, cold", f"bench-kpa-{RUN}"),
    Subject("our class, cold", f"bench-cold-{RUN}"),
    Subject("our class, warm", f"bench-warm-{RUN}"),
)
KPA, COLD, WARM = SUBJECTS


def model(subject: Subject, uri: str, **spec: Any) -> Object:
    """The Model that both of our ways serve."""
    return {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": NAME, "namespace": subject.namespace},
        "spec": {"storageUri": uri, "resources": RESOURCES, "maxReplicas": 1, "scaleToZeroAfter": "1s", **spec},
    }


def knative_service(subject: Subject, uri: str, settings: Settings) -> Object:
    """The same container as a plain Knative Service of Knative's own class."""
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
    """A warm pool for the Model above."""
    return {
        "apiVersion": WARM_POOL.api_version,
        "kind": WARM_POOL.kind,
        "metadata": {"name": POOL, "namespace": subject.namespace},
        "spec": {"template": {"resources": RESOURCES}, "size": size},
    }
