"""The schema of a Model's `spec`, with the bounds, defaults and choices of `serving.types`. Pure.

The schema sets no defaults. The stored object keeps what its author wrote; defaults are applied when it is read. The
default of `maxReplicas` depends on `minReplicas`. An upgrade may change a default for every Model that does not set the
field. A field that nobody set must have no owner in server-side apply. The descriptions give the defaults.
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
"""Bounds of fields that are always refused. The API server needs bounds to estimate the cost of rules."""

_SUM = f"the percents must sum to {validation.ALL}"


def make_spec() -> Schema:
    """Return the schema of `spec`."""
    return mapping(
        "Desired state of the Model.",
        {**what_runs(), "batching": _batching(), **make_scaling(), **_who_gets_which(), **_later()},
        *scaling_rules(),
        *refused(validation.LATER_SPEC),
        required=["storageUri"],
    )


def root_rules() -> list[Schema]:
    """Return the rules that involve both `spec` and `metadata.name`."""
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
    """Return the fields whose change makes a new revision."""
    timeout, startup = map(format_duration, (defaults.TIMEOUT, defaults.STARTUP_DEADLINE))
    return {
        "storageUri": texts.storage_uri(f"Address of the model: {', '.join(f'{scheme}://' for scheme in SCHEMES)}."),
        "storage": _storage(),
        "digest": texts.digest("SHA-256 of the model, verified before it is loaded."),
        "version": texts.version("Version label shown in listings. It is never compared or ordered."),
        "modelFormat": texts.model_format(
            f"Format of the model. If absent, it is found from the files. {', '.join(CODE_FORMATS)} run code of the "
            f"artifact, which the label {LABEL_ALLOW_CODE} of the namespace must allow."
        ),
        "runtime": _runtime(),
        "resources": make_resources(
            f"Resources of each replica. Default: cpu {defaults.CPU}, memory {defaults.MEMORY}."
        ),
        "variants": _variants(),
        "protocol": choice(
            "Protocol of the port. Default: http1.",
            validation.PROTOCOLS,
            f"not supported yet; use {validation.PROTOCOLS[0]}",
        ),
        "containerConcurrency": integer(
            f"Maximum concurrent requests of a replica. 0: no limit. Default: {defaults.CONTAINER_CONCURRENCY}.",
            0,
            validation.MOST_CONCURRENCY,
        ),
        "timeout": texts.duration(
            f"Timeout of a request. Default: {timeout}.", 1.0, validation.LONGEST_TIMEOUT, whole=True
        ),
        "startupDeadline": texts.duration(
            f"Time within which a version must become ready. Default: {startup}.",
            1.0,
            validation.LONGEST_STARTUP,
            whole=True,
        ),
        "serviceAccountName": texts.subdomain("ServiceAccount of the replicas."),
    }


def _who_gets_which() -> dict[str, Schema]:
    return {
        "visibility": choice(
            f"Whether the model can be reached from outside the cluster. Default: {defaults.VISIBILITY}.",
            get_args(Visibility),
            f"must be {' or '.join(get_args(Visibility))}",
        ),
        "traffic": _traffic(),
        "canaryTrafficPercent": integer(
            "Percentage of traffic to the latest ready version. The version that last had all traffic gets the rest.",
            0,
            validation.ALL,
        ),
        "rollout": make_rollout(),
    }


def make_resources(about: str) -> Schema:
    """Return the schema of the mapping `resources`."""
    return mapping(
        about,
        {
            "cpu": texts.quantity("CPU cores."),
            "memory": texts.quantity("Memory in bytes."),
            "gpu": {"description": "Not supported yet.", "x-kubernetes-int-or-string": True},
            "gpuResource": plain("string", "Not supported yet."),
        },
        *refused(validation.LATER_RESOURCES),
    )


def _storage() -> Schema:
    reference = mapping(
        "Secret with the credentials of the store, as the command `secret` creates it.",
        {"name": texts.subdomain("Name of the Secret, in the namespace of the Model.")},
        required=["name"],
    )
    return mapping("Access to the model's storage.", {"secretRef": reference}, required=["secretRef"])


def _runtime() -> Schema:
    later = "Not supported yet."
    return mapping(
        "Runtime that serves the model. Default: the runtime with the name of the format, else the platform's server.",
        {
            "name": texts.label("Name of a runtime in the platform's settings."),
            "image": text(later, LONGEST_PART),
            "args": array(later, text("An argument.", LONGEST_PART), MOST_PARTS),
            "env": array(later, opaque("An environment variable."), MOST_PARTS),
        },
        *refused(validation.LATER_RUNTIME),
        required=["name"],
    )


def _batching() -> Schema:
    latency = format_duration(defaults.MAX_BATCH_LATENCY)
    return mapping(
        "Adaptive batching of requests. If absent, each request is a batch of its own.",
        {
            "maxBatchSize": integer(
                f"Maximum number of rows in a batch. Default: {defaults.MAX_BATCH_SIZE}.",
                validation.LEAST_ROWS,
                validation.MOST_ROWS,
            ),
            "maxLatency": texts.duration(
                f"Maximum time to wait for a batch to fill. Default: {latency}.",
                validation.LEAST_WAIT,
                validation.LONGEST_WAIT,
            ),
        },
    )


def _variants() -> Schema:
    variant = mapping(
        "A variant of every version.",
        {
            "name": texts.label("Name of the variant."),
            "resources": make_resources("Resources of each of its replicas. Absent ones are those of spec.resources."),
            "percent": integer("Percentage of every version's traffic.", 0, validation.ALL),
        },
        required=["name", "percent"],
    )
    return array(
        "Variants that run side by side in every version, for example on different resources.",
        variant,
        validation.MOST_VARIANTS,
        rule("self.all(one, self.exists_one(other, other.name == one.name))", "each name must be its own"),
        rule(f"self.map(one, one.percent).sum() == {validation.ALL}", _SUM),
    )


def _traffic() -> Schema:
    entry = mapping(
        "A traffic target.",
        {
            "revision": texts.subdomain("Name of the revision."),
            "latest": flag("Whether the target is the latest ready version."),
            "percent": integer("Percentage of traffic to the target.", 0, validation.ALL),
            "tag": texts.tag("Tag. The host TAG-NAME leads to the target, whatever its percentage."),
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
        "Traffic split by hand.",
        entry,
        validation.MOST_TRAFFIC,
        rule(
            "self.all(one, !has(one.tag) || self.exists_one(other, has(other.tag) && other.tag == one.tag))",
            "each tag must be its own",
        ),
        rule(f"self.map(one, has(one.percent) ? one.percent : 0).sum() == {validation.ALL}", _SUM),
    )


def _later() -> dict[str, Schema]:
    return {name: opaque(f"Not supported yet: {words}.") for name, words in validation.LATER_SPEC.items()}
