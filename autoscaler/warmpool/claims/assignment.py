"""The assignment of a pool member: read from the revision's Deployment, sent as the body of the load call. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD, DIGESTS_VOLUME
from clusters.base.objects import Object

LLM: Final = "llm"
"""The only parameter that is a mapping: options of a language model, as in its manifest."""
PARAMETERS: Final = (
    "storageUri", "digest", "modelFormat", "slots", "timeout", "cpu", "maxBatchSize", "maxBatchLatency", LLM,
)  # fmt: skip
"""Parameters of the load call besides `revision`; only the first is required."""


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """A model for a member: its name, and the load call's parameters: texts, numbers, and the mapping `LLM`."""

    name: str
    parameters: Mapping[str, Any]

    def body(self) -> Object:
        """Return the JSON body of the load call."""
        return {"parameters": dict(self.parameters)}


def assignment_of(template: Object, revision: str, digest: str = "") -> MemberAssignment | None:
    """Return the assignment of a replica of `revision`, read from its Deployment's `spec.template`.

    `digest` is the recorded digest, for a template without one. Returns None when the template has no readable
    `ANNOTATION_LOAD`; then no member is claimed for it.
    """
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_LOAD)
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    name, parameters = found.get("name"), {key: found[key] for key in PARAMETERS if found.get(key) is not None}
    if digest and not parameters.get("digest"):
        parameters["digest"] = digest
    if not _is_text(name) or not _is_text(parameters.get("storageUri")):
        return None
    if not all(_is_parameter(name, value) for name, value in parameters.items()):
        return None
    return MemberAssignment(str(name), MappingProxyType({**parameters, "revision": revision}))


def loads_anything(template: Object) -> bool:
    """Return whether a replica of this Pod template, or this Pod, accepts any files until a digest is recorded."""
    volumes = (template.get("spec") or {}).get("volumes") or ()
    return any(volume.get("name") == DIGESTS_VOLUME for volume in volumes)


def _is_parameter(name: str, value: Any) -> bool:
    return isinstance(value, dict if name == LLM else str | int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
