"""Authenticates, rate-limits, maps and authorizes the events of one request, then records them all at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from clusters.base.clock import Clock
from clusters.base.errors import Invalid, KnodelError, Unavailable
from clusters.base.redact import quoted
from clusters.net.cloudevents import LONGEST, BadEvent, Event, Malformed
from eventing.auth import permits
from eventing.auth.auth import SenderCredentials
from eventing.errors import TryLater
from eventing.limits import TokenBucket
from eventing.objects.ports import EventLedger, EventSource, Mapper, NewEvent, RecordResult, Sources
from eventing.objects.sequence import EventSequence
from eventing.webhook.backlog import Backlogs
from eventing.webhook.peek import EventHead

COPY: Final = "copy"
TAKEN: Final = "taken"
IGNORED: Final = "ignored"
BACKLOG_WAIT: Final = 5.0
"""Retry-After in seconds for an EventSource with too many pending events: the controller processes many meanwhile."""
FEW: Final = 1000
"""Rate limits kept before those of deleted EventSources are dropped."""
ID_REUSED: Final = (
    "an earlier event with this source and id was for another model or change: give each event its own id"
)

Name = tuple[str, str]
"""Namespace and name of an EventSource."""


class EventVerdict(msgspec.Struct, frozen=True):
    """The result for one event. `message` is `taken`, `copy`, `copy, failed`, `ignored: …`, or the error's message."""

    id: str
    source: str
    status: int
    message: str
    error: BadEvent | None = None


class _Sender(msgspec.Struct, frozen=True):
    """An authenticated EventSource and its rate limit."""

    source: EventSource
    bucket: TokenBucket


class Intake:
    """Accepts or refuses events, and records accepted ones in the ledger."""

    def __init__(
        self, sources: Sources, ledger: EventLedger, mapper: Mapper, clock: Clock, rate: float, pending: int
    ) -> None:
        """`rate`: maximum events a second of one EventSource; `pending`: maximum pending events of one."""
        self._sources = sources
        self._ledger = ledger
        self._mapper = mapper
        self._clock = clock
        self._rate = rate
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._backlogs = Backlogs(pending, clock)
        self._cleanup_at = FEW

    def update_limits(self, rate: float, pending: int) -> None:
        """Replace both limits."""
        self._rate = rate
        self._buckets.clear()
        self._backlogs.most = pending

    async def accept(
        self, events: Sequence[Event | Malformed], credentials: SenderCredentials, by: Name | None = None
    ) -> list[EventVerdict]:
        """Return a verdict for each event, in order. `by` restricts the request to one EventSource."""
        now, at = self._clock.now(), self._clock.monotonic()
        senders: dict[str, _Sender | BadEvent] = {}
        found: list[NewEvent | EventVerdict] = []
        for event in events:
            if isinstance(event, Malformed):
                found.append(_refused(event.id, event.source, event.error))
                continue
            if event.source not in senders:
                senders[event.source] = self._limited(await self._authenticate(event.source, credentials, by))
            found.append(self._entry(event, senders[event.source], now, at))
        return await self._record(found)

    async def accept_from(self, sender: EventSource, events: Sequence[Event]) -> list[EventVerdict]:
        """Return a verdict for each event of an authenticated sender, in order."""
        now, at, limited = self._clock.now(), self._clock.monotonic(), self._limited(sender)
        return await self._record([self._entry(event, limited, now, at) for event in events])

    async def reject_unauthenticated(
        self, heads: Sequence[EventHead | None], credentials: SenderCredentials, by: Name | None = None
    ) -> list[EventVerdict]:
        """Return refusals of all events if `credentials` match the source of none of them, else an empty list."""
        refusals: dict[str, BadEvent] = {}
        for head in heads:
            if head is None or head.source in refusals:
                continue
            sender = await self._authenticate(head.source, credentials, by)
            if not isinstance(sender, BadEvent):
                return []
            refusals[head.source] = sender
        if not refusals:
            return []
        default = next(iter(refusals.values()))
        known = [head or EventHead("") for head in heads]
        return [_refused(one.id[:LONGEST], one.source[:LONGEST], refusals.get(one.source, default)) for one in known]

    async def _authenticate(
        self, source: str, credentials: SenderCredentials, by: Name | None
    ) -> EventSource | BadEvent:
        known = credentials.senders.get(source)
        if known is not None:
            return known
        candidates = self._sources.matching(source)
        if by is not None:
            candidates = [one for one in candidates if (one.namespace, one.name) == by]
        try:
            known = await credentials.authenticate(candidates, f"events of the source {quoted(source)}")
        except BadEvent as error:
            known = error
        credentials.senders[source] = known
        return known

    def _limited(self, sender: EventSource | BadEvent) -> _Sender | BadEvent:
        """Return the sender with its rate limit, or TryLater (429) if too many of its events are pending."""
        if isinstance(sender, BadEvent):
            return sender
        if not self._backlogs.is_full(sender):
            return _Sender(sender, self._bucket(sender))
        message = f"too many events of EventSource {sender.namespace}/{sender.name} are pending, retry later"
        return TryLater(HTTPStatus.TOO_MANY_REQUESTS, message, BACKLOG_WAIT)

    def _entry(self, event: Event, sender: _Sender | BadEvent, now: datetime, at: float) -> NewEvent | EventVerdict:
        if isinstance(sender, BadEvent):
            return _refused(event.id, event.source, sender)
        source = sender.source
        try:
            if wait := sender.bucket.take(at):
                message = (
                    f"EventSource {source.namespace}/{source.name} sends more than {self._rate:g} events a second, "
                    "retry later"
                )
                raise TryLater(HTTPStatus.TOO_MANY_REQUESTS, message, wait)
            return self._checked(event, source, now)
        except BadEvent as error:
            return _refused(event.id, event.source, error)

    def _checked(self, event: Event, sender: EventSource, now: datetime) -> NewEvent:
        """Map and authorize the event. Raises BadEvent (400, 403)."""
        sequence = EventSequence(event.extensions.get("sequence", ""), event.extensions.get("sequencetype", ""))
        if fault := sequence.fault:
            raise BadEvent(HTTPStatus.BAD_REQUEST, fault)
        mapped = self._mapper.map(sender, event)
        if reason := permits.refusal(sender, mapped):
            raise BadEvent(HTTPStatus.FORBIDDEN, reason)
        return NewEvent(sender, event, mapped, now)

    async def _record(self, found: Sequence[NewEvent | EventVerdict]) -> list[EventVerdict]:
        entries = [one for one in found if isinstance(one, NewEvent)]
        results: list[RecordResult | KnodelError]
        try:
            results = list(await self._ledger.record(entries)) if entries else []
        except KnodelError as error:
            results = [error] * len(entries)
        for entry, result in zip(entries, results, strict=True):
            if result is RecordResult.NEW:
                self._backlogs.record(entry.event_source)
        verdicts = iter([_recorded(entry, result) for entry, result in zip(entries, results, strict=True)])
        return [next(verdicts) if isinstance(one, NewEvent) else one for one in found]

    def _bucket(self, sender: EventSource) -> TokenBucket:
        key = (sender.namespace, sender.name)
        bucket = self._buckets.get(key)
        if bucket is None:
            # Names are unbounded, so limits of deleted EventSources are dropped each time the number of limits doubles.
            if len(self._buckets) >= self._cleanup_at:
                for old in [old for old in self._buckets if self._sources.named(*old) is None]:
                    del self._buckets[old]
                    self._backlogs.delete(old)
                self._cleanup_at = max(FEW, 2 * len(self._buckets))
            bucket = self._buckets[key] = TokenBucket(self._rate)
        return bucket


def _recorded(entry: NewEvent, result: RecordResult | KnodelError) -> EventVerdict:
    """Return the verdict on an event that was handed to the ledger."""
    if isinstance(result, KnodelError):
        return _refused(entry.event.id, entry.event.source, _not_stored(result))
    if result is RecordResult.CONFLICT:
        return _refused(entry.event.id, entry.event.source, BadEvent(HTTPStatus.BAD_REQUEST, ID_REUSED))
    message = result.value
    if result is RecordResult.NEW and entry.mapped.ignored:
        message = f"{IGNORED}: {entry.mapped.ignored}"
    return EventVerdict(entry.event.id, entry.event.source, HTTPStatus.ACCEPTED, message)


def _refused(id: str, source: str, error: BadEvent) -> EventVerdict:
    return EventVerdict(id, source, error.status, str(error), error)


def _not_stored(error: KnodelError) -> BadEvent:
    """Return the error for the sender. The store's message is only logged: it may name objects of other tenants."""
    if isinstance(error, Invalid):
        refused = BadEvent(HTTPStatus.BAD_REQUEST, "the event cannot be stored: it is too large, or not allowed")
        refused.__cause__ = error
        return refused
    wait = (error.retry_after if isinstance(error, Unavailable) else None) or 1.0
    failure = TryLater(HTTPStatus.SERVICE_UNAVAILABLE, "the event cannot be stored at present, retry later", wait)
    failure.__cause__ = error
    return failure
