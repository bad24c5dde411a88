"""A model as stored on a platform: its state, traffic split, versions and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from knodel.results.displayed import Displayed
from knodel.results.rollout import RolloutStep


@dataclass(frozen=True)
class TrafficTarget:
    """The share of one version: `percent` from 0 to 100, its version label, and the tag and URL if it has them."""

    revision: str
    percent: int
    version: str = ""
    tag: str = ""
    url: str = ""


@dataclass(frozen=True, repr=False)
class TrafficSplit(Displayed):
    """The traffic split of a model, as last seen at the gateway. Empty before any version was ready.

    Example:
        >>> split = TrafficSplit((TrafficTarget("iris-00001", 90), TrafficTarget("iris-00002", 10)))
        >>> split["iris-00002"], split["iris-00003"]
        (10, 0)
    """

    targets: tuple[TrafficTarget, ...] = ()

    def __getitem__(self, revision: str) -> int:
        """Return the percentage of a revision, 0 for one without traffic."""
        return sum(target.percent for target in self.targets if target.revision == revision)

    def __iter__(self) -> Iterator[TrafficTarget]:
        """Return the targets."""
        return iter(self.targets)

    def __len__(self) -> int:
        """Return the number of targets."""
        return len(self.targets)


@dataclass(frozen=True)
class ModelCondition:
    """A condition of a model, such as Ready: `status` is True, False or Unknown. `since` is RFC 3339."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


@dataclass(frozen=True)
class ReplicaCounts:
    """The number of replicas of all versions."""

    desired: int = 0
    ready: int = 0
    starting: int = 0


@dataclass(frozen=True, repr=False)
class Model(Displayed):
    """A model of a platform.

    `ready`: whether its newest version is ready. `reason`: why it is not; empty if it is. `url` is the base URL for
    requests, empty before the first version is ready. `version` is the label of the newest version. `newest` and
    `newest_ready` are revisions. `object` is the Kubernetes object.
    """

    name: str
    namespace: str
    ready: bool
    reason: str
    url: str
    storage_uri: str
    digest: str
    format: str
    version: str
    newest: str
    newest_ready: str
    replicas: ReplicaCounts
    traffic: TrafficSplit
    rollout: RolloutStep | None
    conditions: tuple[ModelCondition, ...]
    created_at: str
    object: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True, repr=False)
class ModelList(Displayed):
    """The models of a namespace, or of all namespaces, by name."""

    models: tuple[Model, ...] = ()

    def __getitem__(self, name: str) -> Model:
        """Return the first model with this name. Raises KeyError."""
        found = next((model for model in self.models if model.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[Model]:
        """Return the models."""
        return iter(self.models)

    def __len__(self) -> int:
        """Return the number of models."""
        return len(self.models)


@dataclass(frozen=True)
class ModelVersion:
    """A version in a model's history. Times are RFC 3339.

    `outcome` is promoted, rolledback, failed or superseded, empty while the version starts or is ready without traffic.
    `cause` is what made the version, such as `rollback` or `event`. `promoted_at` is empty if it never had all traffic.
    """

    revision: str
    version: str
    outcome: str
    cause: str
    at: str
    promoted_at: str
    digest: str
    storage_uri: str


@dataclass(frozen=True, repr=False)
class ModelHistory(Displayed):
    """The versions of a model, oldest first."""

    model: str
    versions: tuple[ModelVersion, ...] = ()

    def __getitem__(self, index: int) -> ModelVersion:
        """Return a version by its position. Raises IndexError."""
        return self.versions[index]

    def __iter__(self) -> Iterator[ModelVersion]:
        """Return the versions."""
        return iter(self.versions)

    def __len__(self) -> int:
        """Return the number of versions."""
        return len(self.versions)


@dataclass(frozen=True)
class ModelNotice:
    """A Kubernetes Event about a model. `type` is Normal or Warning, `count` the number of occurrences until `at`."""

    at: str
    type: str
    reason: str
    message: str
    count: int = 1


@dataclass(frozen=True, repr=False)
class ModelNoticeList(Displayed):
    """The Kubernetes Events about a model, oldest first."""

    model: str
    notices: tuple[ModelNotice, ...] = ()

    def __getitem__(self, index: int) -> ModelNotice:
        """Return an Event by its position. Raises IndexError."""
        return self.notices[index]

    def __iter__(self) -> Iterator[ModelNotice]:
        """Return the Events."""
        return iter(self.notices)

    def __len__(self) -> int:
        """Return the number of Events."""
        return len(self.notices)


@dataclass(frozen=True)
class LogLine:
    """A line of the log of a replica, without its end of line."""

    replica: str
    text: str

    def __str__(self) -> str:
        return self.text
