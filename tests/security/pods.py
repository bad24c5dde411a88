"""Every Pod that Knodel has rendered: those of its components, of Models, and of warm pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from clusters.base.objects import CONFIGURATION, SERVICE, Object, name_of
from serving.install.bundle import OVERLAYS, load_overlay
from serving.makers.knative import render
from serving.makers.warm_pool import make_seed
from serving.types.loader import read_models
from serving.types.settings.settings import ServerSettings, Settings
from tests.serving.pools import pool

ROOT = Path(__file__).parents[2]
MODELS = (*sorted((ROOT / "tests/golden/render/models").glob("*.yaml")), *sorted((ROOT / "examples").glob("*.yaml")))
IMAGE = "registry.example.org/knodel-server@sha256:" + "0f" * 32
SETTINGS = Settings(server=ServerSettings(image=IMAGE))
POOLS: Mapping[str, Object] = {
    "smallest": {},
    "full": {"template": {"modelFormat": "python", "resources": {"cpu": "2"}, "storage": {"secretRef": {"name": "k"}}}},
}


def templates() -> Iterator[tuple[str, Object]]:
    """(where it comes from, Pod template) of each."""
    for overlay in OVERLAYS:
        for obj in load_overlay(overlay):
            if "template" in (obj.get("spec") or {}):
                yield f"{overlay}:{obj['kind']}/{name_of(obj)}", obj["spec"]["template"]
    for path in MODELS:
        for model in read_models(path):
            stored = {**model, "metadata": {"namespace": "default", **model["metadata"]}}
            for made in render(stored, SETTINGS):
                if made["kind"] in (SERVICE.kind, CONFIGURATION.kind):
                    yield f"{path.parent.name}/{path.name}:{name_of(made)}", made["spec"]["template"]
    for name, spec in POOLS.items():
        yield f"warm pool:{name}", make_seed(pool(**spec), SETTINGS)["spec"]["template"]


def expanded(name: str, template: Object) -> Object:
    """The Deployment that a template becomes, for those who know Kubernetes' own kinds only.

    Knative adds its queue-proxy to the Pods of Models, which is no part of what Knodel says.
    """
    metadata = template.get("metadata") or {}
    labels = {"app": name, **(metadata.get("labels") or {})}
    spec = {key: value for key, value in template["spec"].items() if key not in KNATIVES_OWN}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "models"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {**metadata, "labels": labels}, "spec": spec},
        },
    }


KNATIVES_OWN = frozenset({"containerConcurrency", "timeoutSeconds"})
"""Fields of a RevisionSpec that no PodSpec has."""
