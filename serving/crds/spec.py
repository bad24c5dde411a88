"""The schema of a Model's `spec`: every bound, default and choice is the Python door's own. Pure.

No defaults stand in the schema. The stored object keeps what its author wrote and defaults are read in: the default of
`maxReplicas` hangs on `minReplicas`, an upgrade may change a default for every Model that says nothing, and a field
that nobody named must stay nobody's in server-side apply. The descriptions tell the defaults.
"""

from __future__ import annotations

from typing import get_args

from clusters.base.durations import format_duration
from serving.crds import texts
from serving.crds.rollout import make_rollout
from serving.crds.scaling import make_scaling, scaling_rules
from serving.crds.schema import (
    Schema,
    array,
    choice,
    flag,
    integer,
    mapping,
    opaque,
    plain,
    refused,
    rule,
    text,
)
from serving.types import defaults, validation
from serving.types.annotations import LABEL_ALLOW_CODE
from serving.types.faults import CODE_FORMATS, LONGEST_HOST_LABEL, LONGEST_NAME, SCHEMES
from serving.types.model import Visibility

LONGEST_PART, MOST_PARTS = 4096, 1000
"""Bounds of what is refused in any case: without any, the cost of rules could not be estimated."""

_SUM = f"the percents must sum to {validation.ALL}"


def make_spec() -> Schema:
    """The schema of `spec`."""
    return mapping(
        "What is asked for.",
        {**what_runs(), "batching": _batching(), **make_scaling(), **_who_gets_which(), **_later()},
        *scaling_rules(),
        *refused(validation.LATER_SPEC),
        required=["storageUri"],
    )


def root_rules() -> list[Schema]:
    """Rules that join `spec` with `metadata.name`."""
    variants = f"self.spec.variants.all(one, size(self.metadata.name) + 1 + size(one.name) <= {LONGEST_NAME})"
    tags = (
        "self.spec.traffic.all(one, !has(one.tag) || "
        f"size(one.tag) + 1 + size(self.metadata.name) <= {LONGEST_HOST_LABEL})"
    )
    return [
        rule(
            f"!has(self.spec.variants) || {variants}",
            f"NAME-VARIANT must be at most {LONGEST_NAME} characters",
            ".spec.variants",
        ),
        rule(
            f"!has(self.spec.traffic) || {tags}",
            f"the host TAG-NAME must be at most {LONGEST_HOST_LABEL} characters",
            ".spec.traffic",
        ),
    ]


def what_runs() -> dict[str, Schema]:
    """The fields of which a change makes a revision."""
    timeout, startup = map(format_duration, (defaults.TIMEOUT, defaults.STARTUP_DEADLINE))
    return {
        "storageUri": texts.storage_uri(f"Where the model lies: {', '.join(f'{scheme}://' for scheme in SCHEMES)}."),
        "storage": _storage(),
        "digest": texts.digest("SHA-256 of the model, verified before it is loaded."),
        "version": texts.version("Free text for people; shown everywhere, never ordered."),
        "modelFormat": texts.model_format(
            f"Format of the model; found out when absent. {', '.join(CODE_FORMATS)} run code of the artifact: the "
            f"namespace's label {LABEL_ALLOW_CODE} must allow that."
        ),
        "runtime": _runtime(),
        "resources": make_resources(f"Of each replica; default cpu {defaults.CPU}, memory {defaults.MEMORY}."),
        "variants": _variants(),
        "protocol": choice(
            "What the port speaks; default http1.",
            validation.PROTOCOLS,
            f"not supported yet; use {validation.PROTOCOLS[0]}",
        ),
        "containerConcurrency": integer(
            f"Requests that one replica may have at once, 0 for no limit; default {defaults.CONTAINER_CONCURRENCY}.",
            0,
            validation.MOST_CONCURRENCY,
        ),
        "timeout": texts.duration(f"Of one request; default {timeout}.", 1.0, validation.LONGEST_TIMEOUT, whole=True),
        "startupDeadline": texts.duration(
            f"Until a version that does not become ready has failed; default {startup}.",
            1.0,
            validation.LONGEST_STARTUP,
            whole=True,
        ),
        "serviceAccountName": texts.subdomain("ServiceAccount of the replicas."),
    }


def _who_gets_which() -> dict[str, Schema]:
    return {
        "visibility": choice(
            f"Who may reach the model: everybody, or the cluster alone; default {defaults.VISIBILITY}.",
            get_args(Visibility),
            f"must be {' or '.join(get_args(Visibility))}",
        ),
        "traffic": _traffic(),
        "canaryTrafficPercent": integer(
            "Percent of the latest ready version; the version that last had all traffic gets the rest.",
            0,
            validation.ALL,
        ),
        "rollout": make_rollout(),
    }


def make_resources(about: str) -> Schema:
    """The mapping `resources`."""
    return mapping(
        about,
        {
            "cpu": texts.quantity("Cores."),
            "memory": texts.quantity("Bytes."),
            "gpu": {"description": "Of a later release.", "x-kubernetes-int-or-string": True},
            "gpuResource": plain("string", "Of a later release."),
        },
        *refused(validation.LATER_RESOURCES),
    )


def _storage() -> Schema:
    reference = mapping(
        "The Secret whose keys open the store, as `serving.storage` names them.",
        {"name": texts.subdomain("Its name, in the namespace of the replicas.")},
        required=["name"],
    )
    return mapping("How the model's storage is reached.", {"secretRef": reference}, required=["secretRef"])


def _runtime() -> Schema:
    later = "Of a later release."
    return mapping(
        "What serves the model; when absent the runtime of the format's name, else the platform's server.",
        {
            "name": texts.label("A runtime of the platform's settings."),
            "image": text(later, LONGEST_PART),
            "args": array(later, text("A word.", LONGEST_PART), MOST_PARTS),
            "env": array(later, opaque("A variable."), MOST_PARTS),
        },
        *refused(validation.LATER_RUNTIME),
        required=["name"],
    )


def _batching() -> Schema:
    latency = format_duration(defaults.MAX_BATCH_LATENCY)
    return mapping(
        "Requests that are run as one; absent: each is run alone.",
        {
            "maxBatchSize": integer(
                f"Rows at most; default {defaults.MAX_BATCH_SIZE}.", validation.LEAST_ROWS, validation.MOST_ROWS
            ),
            "maxLatency": texts.duration(
                f"That a request may wait for others; default {latency}.",
                validation.LEAST_WAIT,
                validation.LONGEST_WAIT,
            ),
        },
    )


def _variants() -> Schema:
    variant = mapping(
        "One way to run every version.",
        {
            "name": texts.label("Its name."),
            "resources": make_resources("Of each of its replicas; what is absent is as in spec.resources."),
            "percent": integer("Its share of every version's traffic.", 0, validation.ALL),
        },
        required=["name", "percent"],
    )
    return array(
        "Ways to run every version, side by side.",
        variant,
        validation.MOST_VARIANTS,
        rule("self.all(one, self.exists_one(other, other.name == one.name))", "each name must be its own"),
        rule(f"self.map(one, one.percent).sum() == {validation.ALL}", _SUM),
    )


def _traffic() -> Schema:
    entry = mapping(
        "One part of the traffic.",
        {
            "revision": texts.subdomain("The revision that gets it."),
            "latest": flag("Whether the latest ready version gets it."),
            "percent": integer("Its share.", 0, validation.ALL),
            "tag": texts.tag("Makes the host TAG-NAME, which leads here whatever the percent."),
        },
        rule(
            "has(self.revision) != (has(self.latest) && self.latest)",
            "must say either revision: NAME or latest: true",
        ),
        rule(
            "has(self.percent) || has(self.tag)",
            f"is required: a whole number from 0 to {validation.ALL}",
            ".percent",
        ),
    )
    return array(
        "Who gets what, by hand.",
        entry,
        validation.MOST_TRAFFIC,
        rule(
            "self.all(one, !has(one.tag) || self.exists_one(other, has(other.tag) && other.tag == one.tag))",
            "each tag must be its own",
        ),
        rule(f"self.map(one, has(one.percent) ? one.percent : 0).sum() == {validation.ALL}", _SUM),
    )


def _later() -> dict[str, Schema]:
    return {name: opaque(f"Of a later release: {words}.") for name, words in validation.LATER_SPEC.items()}
