"""The Model as typed values: its spec with all defaults in, and the parts of its status that rules are made of.

`validation.read_model` makes these from an object; nothing else does, so what is here has been checked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autoscaler.schedules import Schedule
from clusters.base.objects import Object, generation_of, name_of, namespace_of, uid_of
from serving.types.rollout import Command, Rollout

Outcome = Literal["", "serving", "promoted", "superseded", "rolledback", "failed"]
"""What became of a version; empty while it starts, or is ready and gets nothing. `rollout.history` has the rules."""

By = Literal["user", "event", "rollback"]
Visibility = Literal["public", "cluster-local"]

LATEST = "latest"
"""How traffic by hand names the latest ready revision on the command line."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Quantities in their canonical spelling: requests and limits alike."""

    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run every version: its own resources, and its share (percent) of every version's traffic."""

    name: str
    resources: Resources
    percent: int


@dataclass(frozen=True, slots=True)
class Batching:
    """Requests that are run as one: rows at most, and seconds that the first of them may wait for others."""

    max_batch_size: int
    max_latency: float


@dataclass(frozen=True, slots=True)
class TrafficEntry:
    """One entry of `spec.traffic`; `revision` None is the latest ready one, an empty `tag` is no tag."""

    revision: str | None
    percent: int
    tag: str


@dataclass(frozen=True, slots=True)
class Scaling:
    """The fields that act on living revisions at once; times in seconds."""

    min_replicas: int
    max_replicas: int
    scale_target: float
    target_utilization: float
    scale_to_zero_after: float  # `autoscaler.types.AUTO`: as long as a start makes worth while
    hold_queue: int
    latency_objective: float = 0.0  # 0: none
    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A checked spec with its defaults; times in seconds, absent texts empty.

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
    """Why a version came: who (`by`), with what id, from where; `more` as in HistoryEntry."""

    by: By = "user"
    id: str = ""
    source: str = ""
    more: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """As it stands in annotations and history; empty parts are left out."""
        parts = {"by": self.by, "id": self.id, "source": self.source}
        return {name: value for name, value in parts.items() if value} | dict(self.more)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cause:
        """The inverse of `to_json`."""
        return cls(
            by=value.get("by", "user"),
            id=value.get("id", ""),
            source=value.get("source", ""),
            more=unknown_to(CAUSE, value),
        )


CAUSE = ("by", "id", "source")
"""Fields of a cause, which a caller may state."""
LINE = ("revision", "version", "digest", "storageUri", "cause", "outcome", "at", "promotedAt")
"""Fields of a line of `status.history`."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of `status.history`: a version that came, or an old one that got all the traffic again.

    `revision` stands for the whole version when there are variants. `at` is when the entry was made, `promoted_at` when
    the revision got all the traffic (empty: it never did); both RFC 3339. `more` are fields that this version of ours
    does not know: a newer one wrote them, and finds them again.
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
        """As it stands in `status.history`; empty parts are left out."""
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
        """The inverse of `to_json`."""
        return cls(
            revision=value["revision"],
            version=value.get("version", ""),
            digest=value.get("digest", ""),
            storage_uri=value.get("storageUri", ""),
            cause=Cause.from_json(value.get("cause", {})),
            outcome=value.get("outcome", ""),
            at=value.get("at", ""),
            promoted_at=value.get("promotedAt", ""),
            more=unknown_to(LINE, value),
        )


@dataclass(frozen=True, slots=True)
class Model:
    """A checked Model; `object` is the one it was read from."""

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


def unknown_to(known: Collection[str], value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `value` that are none of `known`, in their order."""
    return {name: part for name, part in value.items() if name not in known}


def history_of(model: Object) -> tuple[HistoryEntry, ...]:
    """`status.history`, oldest first."""
    return tuple(HistoryEntry.from_json(entry) for entry in (model.get("status") or {}).get("history") or ())
