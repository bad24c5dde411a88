"""What upstream's manifests need so that they run on one small machine from images that are made here. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.testbed.errors import TestbedError
from tests.testbed.upstream import Document

DROPPED = {
    "HorizontalPodAutoscaler": "there are no resource metrics, and one replica of everything is enough",
    "PodDisruptionBudget": "with one replica it would only forbid to drain the one node",
}
REQUESTS = {"cpu": "10m", "memory": "20Mi"}
"""Upstream's requests sum up to more than two cores; what is limited stays limited."""
PROBE_PERIOD = 1
"""s between two readiness probes: with upstream's 5 to 10 s most of the start would be waiting for the next one."""
POD_SECURITY = {"pod-security.kubernetes.io/enforce": "restricted"}
"""All that runs in these namespaces meets it."""
KO = "ko://"
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job"})
FIRST = ("Namespace", "CustomResourceDefinition")
"""Kinds that must be there before others can be."""
LAST = (*sorted(WORKLOADS), "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
"""Kinds that come after what they read or call; all others may come in any order between."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a ConfigMap of upstream's that is not as upstream has it, and why."""

    config_map: str
    key: str
    value: str
    reason: str


def adapted(
    documents: Iterable[Document], images: Mapping[str, str], settings: Iterable[Setting] = ()
) -> list[Document]:
    """The documents as the testbed applies them: same order, none lost but those of a kind in DROPPED.

    `images` maps upstream's names to ours. Raises TestbedError for an image that is not made here and for a setting of
    a ConfigMap that upstream does not have.
    """
    kept = [_adapt(document, images) for document in documents if document["kind"] not in DROPPED]
    for setting in settings:
        _configure(kept, setting)
    return kept


def ordered(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """What has to be there first, and the rest in an order in which nothing waits for what comes later."""
    first: list[Document] = []
    rest: list[Document] = []
    for document in documents:
        (first if document["kind"] in FIRST else rest).append(document)
    return first, sorted(rest, key=lambda document: LAST.index(document["kind"]) if document["kind"] in LAST else -1)


def named(documents: Iterable[Document], kind: str, name: str) -> Document:
    """The document of this kind and name. Raises TestbedError when upstream has it no more."""
    for document in documents:
        if document["kind"] == kind and document["metadata"]["name"] == name:
            return document
    raise TestbedError(f"upstream has no {kind} {name} any more: see how this version does without")


def _adapt(document: Document, images: Mapping[str, str]) -> Document:
    made: Document = _with_images(copy.deepcopy(document), images)
    if made["kind"] == "Namespace":
        made["metadata"].setdefault("labels", {}).update(POD_SECURITY)
    if made["kind"] in WORKLOADS:
        for container in made["spec"]["template"]["spec"]["containers"]:
            _lighten(container)
    return made


def _with_images(value: Any, images: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _with_images(item, images) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_images(item, images) for item in value]
    if isinstance(value, str) and value.startswith(KO) and value not in images:
        raise TestbedError(f"{value} is not built here: add it to modules/*/tools.go and versions.py")
    return images.get(value, value) if isinstance(value, str) else value


def _lighten(container: Document) -> None:
    container.setdefault("resources", {})["requests"] = dict(REQUESTS)
    if probe := container.get("readinessProbe"):
        probe.pop("initialDelaySeconds", None)
        probe["periodSeconds"] = PROBE_PERIOD
    if lifecycle := container.get("lifecycle"):
        lifecycle.pop("preStop", None)  # it needs a shell, which our images do not have
    if "args" in container:  # an argument with a space in it is for a shell, too
        container["args"] = [word for argument in container["args"] for word in argument.split()]


def _configure(documents: Iterable[Document], setting: Setting) -> None:
    config_map = named(documents, "ConfigMap", setting.config_map)
    config_map.setdefault("data", {})[setting.key] = setting.value
