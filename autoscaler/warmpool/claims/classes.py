"""The class of a Pod: a hash of all properties that a claim cannot change. Pure.

A member runs the Pod spec of one Deployment. It may join another Deployment if their Pod specs differ only in
properties that a running Pod can receive later: the load call brings the server's arguments, and names have no effect.
The places of Knative's names were taken from Deployments of Knative 0.50
(`pkg/reconciler/revision/resources/{deploy,queue,env_var}.go`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from autoscaler.warmpool.claims.marks import DIGESTS_VARIABLE, DIGESTS_VOLUME
from clusters.base.objects import ANNOTATION_GPU_FRACTION, Object
from clusters.base.pod_queues import queue_of

HASH_LENGTH: Final = 16
"""Hex digits, 64 bits: two of a thousand classes collide once in 10^13 clusters."""

NAME_VARIABLES: Final = frozenset({
    "K_REVISION", "K_CONFIGURATION", "K_SERVICE", "SERVING_REVISION", "SERVING_CONFIGURATION", "SERVING_SERVICE",
})  # fmt: skip
"""Variables that contain the owner's names for a container or queue-proxy; only logs and traces show them."""

UNTOLD_VARIABLES: Final = NAME_VARIABLES | {DIGESTS_VARIABLE}

FORMAT_ARGUMENT: Final = "--format"
DEFAULT_FORMAT: Final = "onnx"
"""The format of a member without `--format` (`serving.modelserver.base.options.DEFAULT_POOL_FORMAT`)."""

USER_PORT: Final = "user-port"
"""Name of the serving container's port, on both clusters."""

_NAMING_PREFIX = "serving.knative.dev/"
_PLACING = ("affinity", "topologySpreadConstraints")


def pool_class(template: Object, found: str = DEFAULT_FORMAT) -> str:
    """Return the class of a Deployment's `spec.template`, as a label value: `HASH_LENGTH` hex digits.

    Classes are equal for Pod specs that are equal without the serving container's arguments, except for the model's
    format, and without the names of revision, configuration and service, and that have the same queue and the same part
    of a GPU. A member has the engine of one format, and may run code only for formats that need it. `found` is the
    format of a template without one: for a revision, the format that its server detected in the artifact. The namespace
    is not part of the class and must be compared separately.
    """
    essence = _essence(template["spec"], found)
    if queue := queue_of(template)[1]:
        essence["queue"] = queue
    if part := ((template.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_GPU_FRACTION):
        essence[ANNOTATION_GPU_FRACTION] = part
    text = json.dumps(essence, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def format_of(spec: Object) -> str:
    """Return the format in the arguments of a Pod spec's serving container; empty if the server detects it."""
    containers = spec.get("containers") or ()
    return _format(containers[serving_container(spec)].get("args") or ()) if containers else ""


def serving_container(spec: Object) -> int:
    """Return the index of the serving container of a Pod spec: the one with the user's port, else the first."""
    for index, container in enumerate(spec.get("containers") or ()):
        if any(port.get("name") == USER_PORT for port in container.get("ports") or ()):
            return index
    return 0


def _essence(spec: Object, found: str) -> Object:
    """Return the Pod spec without the properties that may differ between revisions that one member can serve."""
    serving = serving_container(spec)
    volumes = [one for one in spec.get("volumes") or () if one.get("name") != DIGESTS_VOLUME]
    essence = {name: value for name, value in {**spec, "volumes": volumes}.items() if value not in (None, [], {}, "")}
    essence["containers"] = [
        _container(container, found if index == serving else None)
        for index, container in enumerate(spec.get("containers") or ())
    ]
    for field in _PLACING:
        if field in essence:
            essence[field] = _nameless(essence[field])
    return essence


def _container(container: Object, found: str | None) -> Object:
    """Return the compared properties of a container; `found` is None except for the serving one."""
    kept = {name: value for name, value in container.items() if name != "args" or found is None}
    if found is not None and (model_format := _format(container.get("args") or ()) or found) != DEFAULT_FORMAT:
        kept["args"] = [FORMAT_ARGUMENT, model_format]
    kept["env"] = [one for one in container.get("env") or () if one.get("name") not in UNTOLD_VARIABLES]
    if mounts := [one for one in container.get("volumeMounts") or () if one.get("name") != DIGESTS_VOLUME]:
        kept["volumeMounts"] = mounts
    else:
        kept.pop("volumeMounts", None)
    return kept


def _format(words: Sequence[str]) -> str:
    """Return the model's format in the server's arguments, empty without one."""
    return next((value for word, value in pairwise(words) if word == FORMAT_ARGUMENT), "")


def _nameless(value: Any) -> Any:
    """Return placement rules without Knative's names in selectors, which only separate replicas of one revision."""
    if isinstance(value, list):
        return [_nameless(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _nameless(one) for name, one in value.items()}
    if isinstance(labels := found.get("matchLabels"), Mapping):
        found["matchLabels"] = {key: text for key, text in labels.items() if not key.startswith(_NAMING_PREFIX)}
    return found
