"""Typed values of a Model: its spec with all defaults, and the parts of its status that rules depend on.

Only `validation.read_model` makes a `Model` from an object, so its spec is valid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autoscaler.schedules import Schedule
from clusters.base.objects import Object, generation_of, name_of, namespace_of, uid_of
from serving.types.rollout import Command, Rollout

Outcome = Literal["", "serving", "promoted", "superseded", "rolledback", "failed"]
"""Outcome of a version; empty while it starts, or is ready without traffic. `rollout.history` has the rules."""

By = Literal["user", "event", "rollback"]
Visibility = Literal["public", "cluster-local"]

LATEST = "latest"
"""The name of the latest ready revision in `knodel traffic`."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits of a replica, which are equal, as quantities in canonical form."""

    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run every version, with its resources and its percent of every version's traffic."""

    name: str
    resources: Resources
    percent: int


@dataclass(frozen=True, slots=True)
class Batching:
    """Limits of a batch: rows, and seconds that its first request may wait for others."""

    max_batch_size: int
    max_latency: float


@dataclass(frozen=True, slots=True)
class TrafficEntry:
    """One entry of `spec.traffic`; `revision` None is the latest ready one, `tag` may be empty."""

    revision: str | None
    percent: int
    tag: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling fields, which act on existing revisions at once; times in seconds."""

    min_replicas: int
    max_replicas: int
    scale_target: float
    target_utilization: float
    scale_to_zero_after: float  # or `autoscaler.types.AUTO`
    hold_queue: int
    latency_objective: float = 0.0  # 0: none
    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A valid spec with its defaults; times in seconds, absent texts empty.

    `secret` is the Secret with the storage's credentials, `runtime` a named runtime of the platform.
    """

    storage_uri: str
    secret: str
    digest: str
    version: str
    model_format: str
    runtime: str
    batching: Batching | None
    resources: Resources
    variants: tuple[Variant, ...]
    container_concurrency: int
    timeout: float
    startup_deadline: float
    service_account_name: str
    scaling: Scaling
    visibility: Visibility
    traffic: tuple[TrafficEntry, ...]
    canary_traffic_percent: int | None
    rollout: Rollout | None


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
class Model:
    """A valid Model, read from `object`."""

    object: Object
    spec: ModelSpec
    cause: Cause
    command: Command | None = None

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
        """`metadata.uid`, empty before the Model is stored."""
        return uid_of(self.object)

    @property
    def generation(self) -> int:
        """`metadata.generation`, 0 before the Model is stored."""
        return generation_of(self.object)


def unknown_fields(known: Collection[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `value` that are not in `known`, in their order."""
    return {name: part for name, part in value.items() if name not in known}


def history_of(model: Object) -> tuple[HistoryEntry, ...]:
    """Return `status.history`, oldest first."""
    return tuple(HistoryEntry.from_json(entry) for entry in (model.get("status") or {}).get("history") or ())
