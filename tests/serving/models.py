"""Models for tests."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import MODEL, Object
from serving.types.model import Model
from serving.types.validation import read_model


def model_object(name: str = "magika", **spec: Any) -> Object:
    """A Model as its author writes it."""
    return {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"storageUri": "file:///models/magika", **spec},
    }


def service_object(name: str = "ranker", **spec: Any) -> Object:
    """A Model that a RayService serves, as its author writes it."""
    obj = model_object(name, **{"modelFormat": "ray", "ray": {"service": "http://ranker-serve-svc:8000"}, **spec})
    if "storageUri" not in spec:
        del obj["spec"]["storageUri"]
    return obj


def stored_object(name: str = "magika", *, uid: str = "u1", generation: int = 1, **spec: Any) -> Object:
    """A Model as a cluster has it."""
    obj = model_object(name, **spec)
    obj["metadata"] |= {"uid": uid, "generation": generation, "resourceVersion": "1"}
    return obj


def model(name: str = "magika", **spec: Any) -> Model:
    """A checked Model."""
    return read_model(stored_object(name, **spec))


VARIANTS: list[Object] = [
    {"name": "a100", "resources": {"cpu": "2"}, "percent": 60},
    {"name": "v100", "resources": {"cpu": "1"}, "percent": 40},
]
