"""What the webhook needs of others, and what it hands on: values and narrow interfaces, no behaviour.

The webhook (`app.py`) ends at `Ledger.record`; who may send is what `Sources` tells; what an event means is what a
`Mapper` makes of it. All three are constructor arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from clusters.base.errors import KnodelError
from eventing.objects.apis import Change as Change
from eventing.objects.apis import ModelRef as ModelRef
from eventing.objects.event import Event

NO_NUMBERS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HmacAuth:
    """Signatures by a key of the Secret `secret`, which is in the EventSource's namespace."""

    secret: str


@dataclass(frozen=True, slots=True)
class OidcAuth:
    """Bearer tokens of `issuer` for `audience`; `subject` is who may send."""

    issuer: str
    audience: str
    subject: str


class EventSource(Protocol):
    """An EventSource as the webhook reads it (design §6)."""

    @property
    def namespace(self) -> str:
        """Of the object, and of the ModelEvents that it brings."""
        ...

    @property
    def name(self) -> str:
        """Of the object."""
        ...

    @property
    def source(self) -> str:
        """Which `source` attributes it is for: one, or all that begin so when it ends in `*`."""
        ...

    @property
    def auth(self) -> HmacAuth | OidcAuth:
        """How senders prove who they are."""
        ...

    @property
    def models(self) -> Sequence[str]:
        """Globs `NAMESPACE/NAME`; a bare `NAME` is in `namespace`."""
        ...

    @property
    def storage_prefixes(self) -> Sequence[str]:
        """What a storageUri may begin with."""
        ...

    @property
    def pending(self) -> int:
        """How many of its events waited for their effect when the controller counted them last."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether a controller counts them at all."""
        ...

    @property
    def mapping(self) -> Translation | None:
        """How foreign events become changes; None where only our own are read."""
        ...


class Sources(Protocol):
    """The EventSources of the cluster, as last seen."""

    def matching(self, source: str) -> Sequence[EventSource]:
        """Those for that `source` attribute: exact ones first, then longer prefixes, then by namespace and name."""
        ...

    def named(self, namespace: str, name: str) -> EventSource | None:
        """One of them."""
        ...


class Mapped(msgspec.Struct, frozen=True, gc=False):
    """What an event means. `id`, `source` and `time` are those of the effect: for a foreign event not its own.

    Without `model` and `change` it means nothing here, and `ignored` says why, in one line.
    """

    id: str
    source: str
    time: datetime | None
    model: ModelRef | None = None
    change: Change | None = None
    metrics: Mapping[str, Any] = NO_NUMBERS
    ignored: str = ""


class Translation(Protocol):
    """A mapping of an EventSource, compiled."""

    @property
    def preset(self) -> str:
        """Which of `presets.PRESETS` it is made of; empty for none."""
        ...

    def map(self, event: Event, namespace: str) -> Mapped:
        """What `event` means to an EventSource in `namespace`. Raises BadEvent for a value that is none."""
        ...


class Mapper(Protocol):
    """Reads events as an EventSource says."""

    def map(self, source: EventSource, event: Event) -> Mapped:
        """What `event` means. Raises BadEvent for one that should mean something and lacks what it takes."""
        ...


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An accepted event on its way to the ledger."""

    event_source: EventSource
    event: Event
    mapped: Mapped
    received_at: datetime


class Recorded(Enum):
    """What the ledger says of an entry: it is new, or `source` and `id` were there before.

    Then it is a copy, whose original may have failed; or it is of another Model or another change than that one.
    """

    TAKEN = "taken"
    COPY = "copy"
    COPY_OF_FAILED = "copy, failed"
    OTHER = "other"


class Ledger(Protocol):
    """Where accepted events are kept."""

    async def record(self, entries: Sequence[NewEvent]) -> Sequence[Recorded | KnodelError]:
        """Keep them, durable when it returns. In its place each has what became of it: Invalid for one that can never
        be kept, another KnodelError for one that may be later. Raises KnodelError: none is promised."""
        ...
