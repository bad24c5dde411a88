"""The table of a Model's fields (see `tables`), and the parts of its status that rules depend on.

Only `validation.read_model` makes a `Model` from an object, so its spec is valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from clusters.base.objects import Object, generation_of, name_of, namespace_of, uid_of
from serving.engines.base.registry import RAY
from serving.engines.vllm.arguments import LORA_RANK
from serving.storage.base.service import service_uri
from serving.types import formats
from serving.types.annotations import LABEL_ALLOW_CODE
from serving.types.faults import (
    CODE_FORMATS,
    GROUP_FORMATS,
    LLM_FORMATS,
    LONGEST_HOST_LABEL,
    LONGEST_NAME,
    PROTOCOLS,
    SCHEMES,
    claim_of,
)
from serving.types.fields import Duration, Flag, Integer, Text
from serving.types.llm import ADAPTER_FORMATS, NO_LLM, Llm, llm_fault
from serving.types.ray import HAS_SERVICE, NO_RAY, SOURCE_RULES, Ray, ray_fault, source_faults
from serving.types.resources import CPU, DEFAULT_RESOURCES, MEMORY, NO_RESOURCES, Resources
from serving.types.rollout import Command, Rollout
from serving.types.scaling import GpuShare, Scaling
from serving.types.schema import LIST_TYPE, opaque, quoted, rule
from serving.types.tables import INLINE, Items, Later, Nested
from serving.types.workers import NO_WORKERS, Workers, workers_fault

Outcome = Literal["", "serving", "promoted", "superseded", "rolledback", "failed"]
"""Outcome of a version; empty while it starts, or is ready without traffic. `rollout.history` has the rules."""

By = Literal["user", "event", "rollback", "promotion"]
Visibility = Literal["public", "cluster-local"]

LATEST = "latest"
"""The name of the latest ready revision in `knodel traffic`."""
ALL: Final = 100
"""Percent."""
MOST_CONCURRENCY: Final = 1000
"""Requests (Knative's container-concurrency-max-limit)."""
LONGEST_TIMEOUT: Final = 600.0
"""s (Knative's max-revision-timeout-seconds)."""
LONGEST_STARTUP: Final = 86_400.0
"""s; a model that takes more than a day to load will not load."""
_LONGEST_PART, _MOST_PARTS = 4096, 1000
"""Bounds of fields that are always refused. The API server needs bounds to estimate the cost of rules."""


def _list_faults(part: str) -> Callable[[list[Any]], Iterator[str]]:
    """Return a check that the attribute `part` of items is unique and their percents sum to 100. CEL: `_list_rules`."""

    def faults(items: list[Any]) -> Iterator[str]:
        for value, count in Counter(filter(None, (getattr(one, part) for one in items))).items():
            if count > 1:
                yield f"{part} {value!r} is given {count} times: each must be unique"
        if (total := sum(one.percent for one in items)) != ALL:
            yield f"the percents sum to {total}: they must sum to {ALL}"

    return faults


def _list_rules(part: str, required: bool) -> tuple[Object, Object]:
    """Return the CEL rules of `_list_faults`, for items that all have both fields if `required`."""
    this, other = ("", "") if required else (f"!has(one.{part}) || ", f"has(other.{part}) && ")
    percent = "one.percent" if required else "has(one.percent) ? one.percent : 0"
    return (
        rule(
            f"self.all(one, {this}self.exists_one(other, {other}other.{part} == one.{part}))",
            f"each {part} must be unique",
        ),
        rule(f"self.map(one, {percent}).sum() == {ALL}", f"the percents must sum to {ALL}"),
    )


def _list_of(item: Object) -> Object:
    return {"type": "array", "minItems": 1, "maxItems": _MOST_PARTS, LIST_TYPE: "atomic", "items": item}


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of every version."""

    name: Annotated[str, Text("Name of the variant.", formats.LABEL)]
    percent: Annotated[int, Integer("Percentage of every version's traffic.", 0, ALL)]
    resources: Annotated[
        Resources, Nested("Resources of each of its replicas. Absent ones are those of spec.resources.", Resources)
    ] = NO_RESOURCES


@dataclass(frozen=True, slots=True)
class Batching:
    """Adaptive batching of requests. If absent, each request is a batch of its own.

    `max_latency` is in seconds.
    """

    max_batch_size: Annotated[int, Integer("Maximum number of rows in a batch.", 2, 4096)] = 16
    max_latency: Annotated[float, Duration("Maximum time to wait for a batch to fill.", 0.0001, 1.0)] = 0.002


@dataclass(frozen=True, slots=True)
class TrafficEntry:
    """A traffic target.

    `revision` None is the latest ready one, `tag` may be empty.
    """

    revision: Annotated[str | None, Text("Name of the revision.", formats.SUBDOMAIN)] = None
    percent: Annotated[int, Integer("Percentage of traffic to the target. Required without a tag.", 0, ALL)] = 0
    tag: Annotated[str, Text("Tag. The host TAG-NAME leads to the target, whatever its percentage.", formats.TAG)] = ""
    latest: Annotated[bool, Flag("Whether the target is the latest ready version.")] = False

    RULES: ClassVar = (
        rule(
            "has(self.revision) != (has(self.latest) && self.latest)",
            "must have either revision: NAME or latest: true",
        ),
        rule("has(self.percent) || has(self.tag)", f"is required: a whole number from 0 to {ALL}", ".percent"),
    )

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rules in Python."""
        if self.latest == (given.get("revision") is not None):
            yield "", "must have either revision: NAME or latest: true"
        if given.get("percent") is None and given.get("tag") is None:
            yield "percent", f"is required: a whole number from 0 to {ALL}"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Secret with the credentials of the store, as the command `secret` creates it."""

    name: Annotated[str, Text("Name of the Secret, in the namespace of the object.", formats.SUBDOMAIN)]


@dataclass(frozen=True, slots=True)
class Storage:
    """Access to the model's storage."""

    secret_ref: Annotated[SecretReference, Nested("", SecretReference)]


@dataclass(frozen=True, slots=True)
class RuntimeReference:
    """Runtime that serves the model. Default: the runtime with the name of the format, else the platform's server."""

    name: Annotated[str, Text("Name of a runtime in the platform's settings.", formats.LABEL)]

    LATER: ClassVar = {
        name: Later("custom containers; use name", like)
        for name, like in (
            ("image", {"type": "string", "maxLength": _LONGEST_PART}),
            ("args", _list_of({"type": "string", "maxLength": _LONGEST_PART})),
            ("env", _list_of(opaque())),
        )
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """The fields of a model server. They are equal in a Model and in the WarmPools whose members may serve it.

    `secret` is the Secret with the storage's credentials, `runtime` a named runtime of the platform, `timeout` in s.
    """

    secret: Annotated[str, Nested("", Storage, lambda storage: storage.secret_ref.name, name="storage")] = ""
    model_format: Annotated[
        str,
        Text(
            f"Format of the model. If absent, it is found from the files. {', '.join(CODE_FORMATS)} run code of the "
            f"artifact, which the label {LABEL_ALLOW_CODE} of the namespace must allow.",
            formats.MODEL_FORMAT,
        ),
    ] = ""
    runtime: Annotated[str, Nested("", RuntimeReference, lambda runtime: runtime.name)] = ""
    resources: Annotated[
        Resources, Nested(f"Resources of each replica. Default: cpu {CPU}, memory {MEMORY}.", Resources)
    ] = DEFAULT_RESOURCES
    container_concurrency: Annotated[
        int, Integer("Maximum concurrent requests of a replica. 0: no limit.", 0, MOST_CONCURRENCY)
    ] = 0
    timeout: Annotated[float, Duration("Timeout of a request.", 1.0, LONGEST_TIMEOUT, whole=True)] = 300.0
    service_account_name: Annotated[str, Text("ServiceAccount of the replicas.", formats.SUBDOMAIN)] = ""

    @staticmethod
    def complete(values: dict[str, Any]) -> None:
        """Set absent resources to their defaults."""
        if "resources" in values:
            values["resources"] = values["resources"].otherwise(DEFAULT_RESOURCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec(ServerSpec):
    """Desired state of the Model.

    Times are in seconds, and absent texts are empty. `storage_uri` is that of `ray.service`, if there is one. The
    fields of `scaling` act on existing revisions at once; most others create a revision.
    """

    storage_uri: Annotated[
        str,
        Text(
            f"Address of the model: {', '.join(f'{scheme}://' for scheme in SCHEMES)}. Required without ray.service.",
            formats.STORAGE_URI,
        ),
    ] = ""
    digest: Annotated[str, Text("SHA-256 of the model, verified before it is loaded.", formats.DIGEST)] = ""
    version: Annotated[
        str, Text("Version label shown in listings. It is never compared or ordered.", formats.VERSION)
    ] = ""
    batching: Annotated[Batching | None, Nested("", Batching)] = None
    llm: Annotated[Llm, Nested("", Llm)] = NO_LLM
    workers: Annotated[Workers | None, Nested("", Workers)] = None
    ray: Annotated[Ray, Nested("", Ray)] = NO_RAY
    variants: Annotated[
        tuple[Variant, ...],
        Items(
            "Variants that run side by side in every version, for example on different resources.",
            Nested("", Variant),
            20,
            _list_rules("name", required=True),
            _list_faults("name"),
        ),
    ] = ()
    protocol: Annotated[str, Text("Protocol of the port.", formats.PROTOCOL)] = PROTOCOLS[0]
    startup_deadline: Annotated[
        float, Duration("Time within which a version must become ready.", 1.0, LONGEST_STARTUP, whole=True)
    ] = 600.0
    scaling: Annotated[Scaling, INLINE]
    gpu_share: Annotated[GpuShare, INLINE]
    visibility: Annotated[
        Visibility,
        Text("Whether the model can be reached from outside the cluster.", formats.one_of(*get_args(Visibility))),
    ] = "public"
    traffic: Annotated[
        tuple[TrafficEntry, ...],
        Items(
            "Traffic split by hand.",
            Nested("", TrafficEntry),
            100,
            _list_rules("tag", required=False),
            _list_faults("tag"),
        ),
    ] = ()
    canary_traffic_percent: Annotated[
        int | None,
        Integer(
            "Percentage of traffic to the latest ready version. The version that last had all traffic gets the rest.",
            0,
            ALL,
        ),
    ] = None
    rollout: Annotated[Rollout | None, Nested("", Rollout)] = None

    LATER: ClassVar = {"template": Later("overrides of the Pod template")}
    RULES: ClassVar = (
        rule(
            f"!has(self.llm) || !has(self.modelFormat) || self.modelFormat in [{', '.join(map(quoted, LLM_FORMATS))}]",
            f"is for models of the formats {', '.join(LLM_FORMATS)}: omit it",
            ".llm",
        ),
        *SOURCE_RULES,
        rule(
            "!has(self.workers) || "
            f"has(self.modelFormat) && self.modelFormat in [{', '.join(map(quoted, GROUP_FORMATS))}]",
            workers_fault(""),
            ".workers",
        ),
        rule(f"!has(self.workers) || !({HAS_SERVICE})", NO_WORKERS, ".workers"),
        rule(
            f"!has(self.ray) || (has(self.modelFormat) && self.modelFormat == {quoted(RAY)})",
            ray_fault(""),
            ".ray",
        ),
    )

    def faults(self, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rules in Python."""
        yield from source_faults(given)
        if given.get("llm") is not None and (fault := llm_fault(self.model_format)):
            yield "llm", fault
        if given.get("workers") is not None and (fault := workers_fault(self.model_format)):
            yield "workers", fault
        elif given.get("workers") is not None and self.ray.service:
            yield "workers", NO_WORKERS
        if given.get("ray") is not None and (fault := ray_fault(self.model_format)):
            yield "ray", fault

    @staticmethod
    def complete(values: dict[str, Any]) -> None:
        """Set absent resources to their defaults, those of variants to those of the Model.

        The storage URI of a Model with a service is that of the service.
        """
        ServerSpec.complete(values)
        if url := values.get("ray", NO_RAY).service:
            values["storage_uri"] = service_uri(url)
        default = values.get("resources", DEFAULT_RESOURCES)
        if "variants" in values:
            values["variants"] = tuple(
                replace(variant, resources=variant.resources.otherwise(default)) for variant in values["variants"]
            )


def sizes_of(spec: ModelSpec) -> tuple[Resources, ...]:
    """Return the resources of a replica of each variant, or of the only one."""
    return tuple(variant.resources for variant in spec.variants) or (spec.resources,)


def loads_adapters(spec: ModelSpec) -> bool:
    """Return whether replicas load and unload adapters while they serve, so that another list makes no version.

    The engine must be known, and must have been started with room for adapters. It must be one process: the workers of
    a group have no list.
    """
    has_room = bool(spec.llm.adapters) or any(name == LORA_RANK for name, _ in spec.llm.engine_args)
    return spec.model_format in ADAPTER_FORMATS and spec.workers is None and has_room


def claims_of(spec: ModelSpec) -> tuple[str, ...]:
    """Return the PersistentVolumeClaims with the files of the model and of its adapters, each once."""
    uris = (spec.storage_uri, *(adapter.uri for adapter in spec.llm.adapters))
    return tuple(dict.fromkeys(filter(None, map(claim_of, uris))))


def host_faults(name: str, spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Return the fault of each variant and tag that makes a name with the Model's name which is too long."""
    for index, variant in enumerate(spec.variants):
        if len(made := f"{name}-{variant.name}") > LONGEST_NAME:
            yield f"spec.variants[{index}].name", f"{made} must be at most {LONGEST_NAME} characters"
    for index, entry in enumerate(spec.traffic):
        if entry.tag and len(host := f"{entry.tag}-{name}") > LONGEST_HOST_LABEL:
            yield f"spec.traffic[{index}].tag", f"the host {host} must be at most {LONGEST_HOST_LABEL} characters"


HOST_RULES: Final = (
    rule(
        "!has(self.spec.variants) || "
        f"self.spec.variants.all(one, size(self.metadata.name) + 1 + size(one.name) <= {LONGEST_NAME})",
        f"NAME-VARIANT must be at most {LONGEST_NAME} characters",
        ".spec.variants",
    ),
    rule(
        "!has(self.spec.traffic) || self.spec.traffic.all(one, !has(one.tag) || "
        f"size(one.tag) + 1 + size(self.metadata.name) <= {LONGEST_HOST_LABEL})",
        f"the host TAG-NAME must be at most {LONGEST_HOST_LABEL} characters",
        ".spec.traffic",
    ),
)
"""The CEL rules of `host_faults`."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a version: its kind (`by`), id and source. `more` as in HistoryEntry."""

    by: By = "user"
    id: str = ""
    source: str = ""
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the cause as stored in annotations and history, without empty fields."""
        parts = {"by": self.by, "id": self.id, "source": self.source}
        return {name: value for name, value in parts.items() if value} | dict(self.more)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cause:
        """Read a cause that `to_json` wrote."""
        return cls(
            by=value.get("by", "user"),
            id=value.get("id", ""),
            source=value.get("source", ""),
            more=unknown_fields(CAUSE, value),
        )


CAUSE = ("by", "id", "source")
"""Fields of a cause that a caller may set."""
LINE = ("revision", "version", "digest", "storageUri", "cause", "outcome", "at", "promotedAt")
"""Fields of an entry of `status.history`."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of `status.history`: a new version, or an old one that got all the traffic again.

    With variants, `revision` identifies the whole version. `at` is when the entry was made, `promoted_at` when the
    revision got all the traffic (empty: never); both RFC 3339. `more` are fields of a newer release, which are kept.
    """

    revision: str
    version: str
    digest: str
    storage_uri: str
    cause: Cause
    outcome: Outcome
    at: str
    promoted_at: str
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as stored in `status.history`, without empty fields."""
        parts = {
            "revision": self.revision,
            "version": self.version,
            "digest": self.digest,
            "storageUri": self.storage_uri,
            "cause": self.cause.to_json(),
            "outcome": self.outcome,
            "at": self.at,
            "promotedAt": self.promoted_at,
        }
        return {name: value for name, value in parts.items() if value} | dict(self.more)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> HistoryEntry:
        """Read an entry that `to_json` wrote."""
        return cls(
            revision=value["revision"],
            version=value.get("version", ""),
            digest=value.get("digest", ""),
            storage_uri=value.get("storageUri", ""),
            cause=Cause.from_json(value.get("cause", {})),
            outcome=value.get("outcome", ""),
            at=value.get("at", ""),
            promoted_at=value.get("promotedAt", ""),
            more=unknown_fields(LINE, value),
        )


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """A valid object of one of our kinds."""

    object: Object

    @property
    def name(self) -> str:
        """`metadata.name`."""
        return name_of(self.object)

    @property
    def namespace(self) -> str:
        """`metadata.namespace`."""
        return namespace_of(self.object)

    @property
    def uid(self) -> str:
        """`metadata.uid`, empty before the object is stored."""
        return uid_of(self.object)

    @property
    def generation(self) -> int:
        """`metadata.generation`, 0 before the object is stored."""
        return generation_of(self.object)


@dataclass(frozen=True, slots=True)
class Model(CheckedObject):
    """A valid Model, read from `object`."""

    spec: ModelSpec
    cause: Cause
    command: Command | None = None


def unknown_fields(known: Collection[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `value` that are not in `known`, in their order."""
    return {name: part for name, part in value.items() if name not in known}


def format_of(model: Object) -> str:
    """Return the format of a Model: the given one, else the one that a replica detected; "" while it is unknown."""
    return str((model.get("spec") or {}).get("modelFormat") or (model.get("status") or {}).get("modelFormat") or "")


def history_of(model: Object) -> tuple[HistoryEntry, ...]:
    """Return `status.history`, oldest first."""
    return tuple(HistoryEntry.from_json(entry) for entry in (model.get("status") or {}).get("history") or ())
