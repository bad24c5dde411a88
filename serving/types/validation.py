"""Validate a Model object and read it into a `Model`, with every fault at once, each with its field path. Pure.

`validate_model` is the admission check. All other code reads a Model's fields with `read_model`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, cast, get_args

from clusters.base.errors import FieldError, Invalid
from clusters.base.names import dns_label_fault
from clusters.base.objects import MODEL, Object
from clusters.base.quantities import canonical_quantity
from serving.types import defaults, faults
from serving.types.annotations import ANNOTATION_CAUSE, ANNOTATION_ROLLOUT
from serving.types.model import (
    Batching,
    By,
    Cause,
    Model,
    ModelSpec,
    Resources,
    TrafficEntry,
    Variant,
    Visibility,
)
from serving.types.reader import Fields, short_repr
from serving.types.rollout import Command, command_fault, parse_command, read_rollout
from serving.types.scaling import read_scaling

MOST_CONCURRENCY = 1000
"""Requests (Knative's container-concurrency-max-limit)."""
LONGEST_TIMEOUT = 600.0
"""s (Knative's max-revision-timeout-seconds)."""
LONGEST_STARTUP = 86_400.0
"""s; a model that takes more than a day to load will not load."""
LEAST_ROWS = 2
"""Rows of one batch; with one row there is no batching."""
MOST_ROWS = 4096
"""Rows of one batch; engines do not gain from more, and all its requests wait for it."""
LEAST_WAIT = 0.0001
"""s; the resolution of timers."""
LONGEST_WAIT = 1.0
"""s; waiting longer for a batch never pays."""
MOST_VARIANTS = 20
"""Configurations of one Model."""
MOST_TRAFFIC = 100
"""Entries, one for each percent; more is a typing error."""
ALL = 100
"""Percent."""

LATER_SPEC = {
    "template": "a pod template laid over ours",
}
"""Fields of a later release: they are refused, never ignored."""
LATER_RESOURCES = {"gpu": "GPUs", "gpuResource": "GPUs"}
LATER_RUNTIME = dict.fromkeys(("image", "args", "env"), "containers of your own; use name")
PROTOCOLS = ("http1",)


def validate_model(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return every fault of `new`.

    Without a change to the fields that callers write there are none, so that the status can always be written.
    """
    if old is not None and _claims(old) == _claims(new):
        return ()
    return _read(new)[1]


def read_model(obj: Object) -> Model:
    """Return the Model with all defaults. Raises Invalid with every fault."""
    model, errors = _read(obj)
    if errors:
        raise Invalid(f"Model {short_repr((obj.get('metadata') or {}).get('name', ''))[1:-1]}", errors)
    return model


def other_than(expected: str, value: str) -> str:
    """Return the fault of a text that must be `expected`; empty if it is."""
    return "" if value == expected else f"must be {expected}, not {short_repr(value)}"


def _claims(obj: Object) -> tuple[Any, Any]:
    """Return everything that a caller may have written: the spec, Knodel's annotations, and unknown fields."""
    written = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    annotations = obj["metadata"].get("annotations") or {}
    return written, [annotations.get(name) for name in (ANNOTATION_CAUSE, ANNOTATION_ROLLOUT)]


def _read(obj: Object) -> tuple[Model, list[FieldError]]:
    errors: list[FieldError] = []
    top = Fields(obj, "", errors)
    for name, expected in (("apiVersion", MODEL.api_version), ("kind", MODEL.kind)):
        top.text(name, partial(other_than, expected), required=True)
    name, cause, command = _read_metadata(top.child("metadata"))
    top.raw("status")
    if not isinstance(top.raw("spec"), dict):
        top.refuse("spec", "is required: a mapping with at least storageUri")
        spec = Fields({}, "spec", [])
    else:
        spec = top.child("spec")
    top.close()
    return Model(obj, _read_spec(spec, name), cause, command), errors


def _read_metadata(fields: Fields) -> tuple[str, Cause, Command | None]:
    name = fields.text("name", faults.model_name_fault, required=True)
    fields.text("namespace", dns_label_fault)
    annotations = Fields(fields.raw("annotations"), fields.at("annotations"), fields.errors)
    command = parse_command(annotations.text(ANNOTATION_ROLLOUT, command_fault))
    return name, _read_cause(annotations), command


def _read_cause(annotations: Fields) -> Cause:
    text = annotations.text(ANNOTATION_CAUSE, lambda _: "")
    if not text:
        return Cause()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    by = get_args(By)
    parts = value if isinstance(value, dict) else {}
    texts = all(isinstance(part, str) for part in parts.values())
    if not texts or parts.get("by") not in by or not set(parts) <= {"by", "id", "source"}:
        annotations.refuse(ANNOTATION_CAUSE, f'must be JSON as in {{"by": "user"}}, by one of {", ".join(by)}')
        return Cause()
    return Cause(**parts)


def _read_spec(fields: Fields, name: str) -> ModelSpec:
    variants = _read_variants(fields, name)
    spec = ModelSpec(
        storage_uri=fields.text("storageUri", faults.storage_uri_fault, required=True),
        secret=read_secret(fields),
        digest=fields.text("digest", faults.digest_fault),
        version=fields.text("version", faults.version_fault),
        model_format=fields.text("modelFormat", faults.format_fault),
        runtime=read_runtime(fields),
        batching=_read_batching(fields),
        resources=read_resources(fields.child("resources"), Resources(defaults.CPU, defaults.MEMORY)),
        variants=variants,
        container_concurrency=fields.integer(
            "containerConcurrency", defaults.CONTAINER_CONCURRENCY, 0, MOST_CONCURRENCY
        ),
        timeout=fields.seconds("timeout", defaults.TIMEOUT, 1.0, LONGEST_TIMEOUT, whole=True),
        startup_deadline=fields.seconds("startupDeadline", defaults.STARTUP_DEADLINE, 1.0, LONGEST_STARTUP, whole=True),
        service_account_name=fields.text("serviceAccountName", faults.subdomain_fault),
        scaling=read_scaling(fields),
        visibility=cast(Visibility, fields.choice("visibility", get_args(Visibility), defaults.VISIBILITY)),
        traffic=_read_traffic(fields, name),
        canary_traffic_percent=fields.integer("canaryTrafficPercent", 0, 0, ALL)
        if fields.has("canaryTrafficPercent")
        else None,
        rollout=read_rollout(fields.part("rollout")),
    )

    def protocol_fault(protocol: str) -> str:
        return "" if protocol in PROTOCOLS else f"not supported yet: {short_repr(protocol)}; use {PROTOCOLS[0]}"

    fields.text("protocol", protocol_fault)
    fields.close(LATER_SPEC)
    return spec


def read_secret(fields: Fields) -> str:
    """Read the name in `storage.secretRef` of a Model or of a WarmPool's template; empty when absent."""
    storage = fields.part("storage")
    if storage is None:
        return ""
    reference, name = storage.part("secretRef", required=True), ""
    if reference is not None:
        name = reference.text("name", faults.subdomain_fault, required=True)
        reference.close()
    storage.close()
    return name


def read_runtime(fields: Fields) -> str:
    """Read the name in `runtime` of a Model or of a WarmPool's template; empty when absent."""
    runtime = fields.part("runtime")
    if runtime is None:
        return ""
    name = runtime.text("name", faults.label_fault, required=True)
    runtime.close(LATER_RUNTIME)
    return name


def _read_batching(fields: Fields) -> Batching | None:
    batching = fields.part("batching")
    if batching is None:
        return None
    read = Batching(
        max_batch_size=batching.integer("maxBatchSize", defaults.MAX_BATCH_SIZE, LEAST_ROWS, MOST_ROWS),
        max_latency=batching.seconds("maxLatency", defaults.MAX_BATCH_LATENCY, LEAST_WAIT, LONGEST_WAIT),
    )
    batching.close()
    return read


def read_resources(fields: Fields, default: Resources) -> Resources:
    """Read the mapping `resources` of a Model, of a variant, or of a WarmPool's template."""
    cpu = read_quantity(fields, "cpu", default.cpu)
    memory = read_quantity(fields, "memory", default.memory)
    fields.close(LATER_RESOURCES)
    return Resources(cpu, memory)


def read_quantity(fields: Fields, name: str, default: str) -> str:
    """Read a quantity, and return its canonical form; `default` is returned unchanged."""
    value = fields.raw(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # Kubernetes accepts `cpu: 1` as well
    if value is None:
        return default
    fault = faults.quantity_fault(value) if isinstance(value, str) else f"must be a quantity, not {short_repr(value)}"
    if fault:
        fields.refuse(name, fault)
        return default
    return canonical_quantity(value)


def _read_variants(fields: Fields, name: str) -> tuple[Variant, ...]:
    base = Fields(fields.raw("resources"), "spec.resources", [])  # `_read_spec` reports its faults
    default = read_resources(base, Resources(defaults.CPU, defaults.MEMORY))
    variants = []
    for item in fields.items("variants", MOST_VARIANTS):
        variant = item.text("name", faults.label_fault, required=True)
        if variant and len(f"{name}-{variant}") > faults.LONGEST_NAME:
            item.refuse("name", f"{name}-{variant} must be at most {faults.LONGEST_NAME} characters")
        resources = read_resources(item.child("resources"), default)
        variants.append(Variant(variant, resources, item.integer("percent", 0, 0, ALL, required=True)))
    _check_unique(fields, "variants", "name", [variant.name for variant in variants])
    _check_sum(fields, "variants", [variant.percent for variant in variants])
    return tuple(variants)


def _read_traffic(fields: Fields, name: str) -> tuple[TrafficEntry, ...]:
    entries = []
    for item in fields.items("traffic", MOST_TRAFFIC):
        revision = item.text("revision", faults.subdomain_fault)
        latest = item.flag("latest")
        if bool(revision) == latest and (latest or not item.has("revision")):
            item.refuse("", "must say either revision: NAME or latest: true")
        tag = item.text("tag", faults.tag_fault)
        if tag and len(f"{tag}-{name}") > faults.LONGEST_HOST_LABEL:
            item.refuse("tag", f"the host {tag}-{name} must be at most {faults.LONGEST_HOST_LABEL} characters")
        percent = item.integer("percent", 0, 0, ALL, required=not item.has("tag"))
        entries.append(TrafficEntry(revision or None, percent, tag))
    _check_unique(fields, "traffic", "tag", [entry.tag for entry in entries])
    _check_sum(fields, "traffic", [entry.percent for entry in entries])
    return tuple(entries)


def _check_unique(fields: Fields, name: str, part: str, values: Sequence[str]) -> None:
    for value, count in Counter(value for value in values if value).items():
        if count > 1:
            fields.refuse(name, f"{part} {value!r} is given {count} times: each must be unique")


def _check_sum(fields: Fields, name: str, percents: Sequence[int]) -> None:
    if percents and sum(percents) != ALL:
        fields.refuse(name, f"the percents sum to {sum(percents)}: they must sum to {ALL}")
