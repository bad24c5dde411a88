"""Which Pods can become replicas of which revision: a hash over what a claim cannot change. Pure.

A member runs the Pod spec of one Deployment and may join another one whose Pod spec differs in nothing that a running
Pod cannot be told: the words for its server come by the load call, and names are names. What Knative puts its names
into was seen in Deployments of Knative 0.50 (`pkg/reconciler/revision/resources/{deploy,queue,env_var}.go`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from autoscaler.warmpool.claims.marks import DIGESTS_VARIABLE, DIGESTS_VOLUME
from clusters.base.objects import Object

HASH_LENGTH: Final = 16
"""Hex digits, 64 bits: two of a thousand classes are mistaken for each other once in 10^13 clusters."""

NAME_VARIABLES: Final = frozenset({
    "K_REVISION", "K_CONFIGURATION", "K_SERVICE", "SERVING_REVISION", "SERVING_CONFIGURATION", "SERVING_SERVICE",
})  # fmt: skip
"""Variables that tell a container or queue-proxy whose it is; only logs and traces show them."""

UNTOLD_VARIABLES: Final = NAME_VARIABLES | {DIGESTS_VARIABLE}

FORMAT_ARGUMENT: Final = "--format"
DEFAULT_FORMAT: Final = "onnx"
"""The format that a member prepares for without `--format` (`serving.modelserver.base.options.DEFAULT_POOL_FORMAT`)."""

USER_PORT: Final = "user-port"
"""Name of the port of the container that serves, on both clusters."""

_NAMING_PREFIX = "serving.knative.dev/"
_PLACING = ("affinity", "topologySpreadConstraints")


def pool_class(template: Object, found: str = DEFAULT_FORMAT) -> str:
    """Return the class of a Deployment's `spec.template`, as a label value: `HASH_LENGTH` hex digits.

    Equal for equal Pod specs after the arguments of the serving container, but for the model's format, and the names of
    revision, configuration and service are taken out. A member has the engine of one format, and may run code only for
    formats that need it. `found` is the format of a template that names none: for a revision the one that its server
    found in the artifact. Namespaces are not in it: whoever compares classes compares namespaces too.
    """
    text = json.dumps(_essence(template["spec"], found), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def format_of(spec: Object) -> str:
    """Return the format that the serving container of a Pod spec is given; empty when it is to find it."""
    containers = spec.get("containers") or ()
    return _format(containers[serving_container(spec)].get("args") or ()) if containers else ""


def serving_container(spec: Object) -> int:
    """The index of the container that takes requests in a Pod spec: the one with the user's port, else the first."""
    for index, container in enumerate(spec.get("containers") or ()):
        if any(port.get("name") == USER_PORT for port in container.get("ports") or ()):
            return index
    return 0


def _essence(spec: Object, found: str) -> Object:
    """The Pod spec without what differs between revisions that one member could serve."""
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
    """Return what is compared of a container; `found` is None but for the one that serves."""
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
    """Return the model's format among the arguments of the server, empty without one."""
    return next((value for word, value in pairwise(words) if word == FORMAT_ARGUMENT), "")


def _nameless(value: Any) -> Any:
    """Placing rules without the selectors' Knative names: they only keep replicas of one revision apart."""
    if isinstance(value, list):
        return [_nameless(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    found = {name: _nameless(one) for name, one in value.items()}
    if isinstance(labels := found.get("matchLabels"), Mapping):
        found["matchLabels"] = {key: text for key, text in labels.items() if not key.startswith(_NAMING_PREFIX)}
    return found
