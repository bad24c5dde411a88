"""Values and interfaces that connect the parts of eventing: EventSources, mapped events, mappers, the ledger.

The webhook (`app.py`) finds EventSources through `Sources`, maps events with a `Mapper` and stores them through
`Ledger.record`. All three are constructor arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from clusters.base.errors import KnodelError
from clusters.net.cloudevents import Event
from eventing.objects.apis import ModelChange as ModelChange
from eventing.objects.apis import ModelRef as ModelRef

NO_NUMBERS: Mapping[str, Any] = MappingProxyType({})
ANY: Final = "*"
"""Last character of the `source` of an EventSource that is a prefix."""


@dataclass(frozen=True, slots=True)
class HmacAuth:
    """Authentication by signatures with a key in the Secret `secret` of the EventSource's namespace."""

    secret: str


@dataclass(frozen=True, slots=True)
class OidcAuth:
    """Authentication by bearer tokens of `issuer` for `audience`, issued to `subject`."""

    issuer: str
    audience: str
    subject: str


class EventSource(msgspec.Struct, frozen=True):
    """A checked EventSource, as the webhook and the controller use it.

    `source`: the accepted `source` attribute, or a prefix that ends in `*`. `models`: globs `NAMESPACE/NAME`, or `NAME`
    in the EventSource's namespace. `storage_prefixes`: allowed prefixes of storage URIs. `allow_code`: whether its
    events may set formats that run code of the artifact. `create_models`: whether they may create Models. `mapping`:
    how foreign events become changes, None to accept only Knodel's own event type. `pending`: its pending events when
    the controller counted them last. `is_counted`: whether a controller has counted them at all.
    """

    namespace: str
    name: str
    source: str
    auth: HmacAuth | OidcAuth
    models: tuple[str, ...]
    storage_prefixes: tuple[str, ...] = ()
    allow_code: bool = False
    create_models: bool = False
    mapping: Translation | None = None
    pending: int = 0
    is_counted: bool = True

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        """Sort key among EventSources that match: exact ones, then longer prefixes, then by namespace and name."""
        return self.source.endswith(ANY), -len(self.source), self.namespace, self.name

    def matches(self, source: str) -> bool:
        """Return whether it accepts events with that `source` attribute."""
        if self.source.endswith(ANY):
            return source.startswith(self.source.removesuffix(ANY))
        return source == self.source


class Sources(Protocol):
    """The EventSources of the cluster."""

    def matching(self, source: str) -> Sequence[EventSource]:
        """Return those that accept this `source`: exact ones, then longer prefixes, then by namespace and name."""
        ...

    def named(self, namespace: str, name: str) -> EventSource | None:
        """Return the EventSource of that name, or None."""
        ...


class Mapped(msgspec.Struct, frozen=True, gc=False):
    """The meaning of an event. `id`, `source` and `time` identify the change; a mapping may set them.

    Without `model` and `change` the event has no effect, and `ignored` contains the reason in one line.
    """

    id: str
    source: str
    time: datetime | None
    model: ModelRef | None = None
    change: ModelChange | None = None
    metrics: Mapping[str, Any] = NO_NUMBERS
    ignored: str = ""


class Translation(Protocol):
    """A compiled mapping of an EventSource."""

    @property
    def preset(self) -> str:
        """Name of the preset in `presets.PRESETS` that it extends; empty for none."""
        ...

    def map(self, event: Event, namespace: str) -> Mapped:
        """Return the meaning of `event` for an EventSource in `namespace`. Raises BadEvent for an invalid value."""
        ...


class Mapper(Protocol):
    """Maps events to changes of Models by the rules of their EventSource."""

    def map(self, source: EventSource, event: Event) -> Mapped:
        """Return the meaning of `event`. Raises BadEvent if it matches a rule, but a required value is missing."""
        ...


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An accepted event that is to be recorded."""

    event_source: EventSource
    event: Event
    mapped: Mapped
    received_at: datetime


class RecordResult(Enum):
    """The ledger's result for one event. The values are those of the response header `Knodel-Event`.

    NEW: recorded now. DUPLICATE: recorded before. DUPLICATE_OF_FAILED: recorded before, and it failed. CONFLICT: its
    source and id were used before for another Model or change.
    """

    NEW = "taken"
    DUPLICATE = "copy"
    DUPLICATE_OF_FAILED = "copy, failed"
    CONFLICT = "other"


class EventLedger(Protocol):
    """Stores accepted events."""

    async def record(self, entries: Sequence[NewEvent]) -> Sequence[RecordResult | KnodelError]:
        """Store the events durably; return the result for each, in order.

        A result is Invalid for an event that can never be stored, another KnodelError for one that may be stored later.
        Raises KnodelError if nothing is known to be stored.
        """
        ...
