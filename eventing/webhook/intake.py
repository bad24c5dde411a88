"""Events of one request on their way to the ledger: sender, rate, meaning, rights, and then all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Final

import msgspec

from clusters.base.clock import Clock
from clusters.base.errors import Invalid, KnodelError, Unavailable
from eventing.auth import permits
from eventing.auth.auth import Proof
from eventing.errors import BadEvent, TryLater, shown
from eventing.objects.attributes import LONGEST
from eventing.objects.event import Event, Malformed
from eventing.objects.ports import EventSource, Ledger, Mapper, NewEvent, Recorded, Sources
from eventing.objects.sequence import EventSequence
from eventing.rate import TokenBucket
from eventing.webhook.backlog import Backlogs
from eventing.webhook.heads import Head

COPY: Final = "copy"
TAKEN: Final = "taken"
IGNORED: Final = "ignored"
BACKLOG_WAIT: Final = 5.0
"""s after which events may wait in a queue that was full: several seconds' work of the controller."""
FEW: Final = 1000
"""EventSources of which something is remembered though they may be gone."""
USED: Final = "an event of this source and id was for another model or change: give each event an id of its own"


Name = tuple[str, str]
"""Namespace and name of an EventSource."""


class Verdict(msgspec.Struct, frozen=True):
    """What became of one event. `message`: `taken`, `copy`, `copy, failed`, `ignored: …`, or what is wrong with it."""

    id: str
    source: str
    status: int
    message: str
    error: BadEvent | None = None


class _Sender(msgspec.Struct, frozen=True):
    """Whose events are taken, and how many of them."""

    source: EventSource
    bucket: TokenBucket


class Intake:
    """Takes events in."""

    def __init__(
        self, sources: Sources, ledger: Ledger, mapper: Mapper, clock: Clock, rate: float, pending: int
    ) -> None:
        """`rate`: events a second of one EventSource; `pending`: of it that may wait."""
        self._sources = sources
        self._ledger = ledger
        self._mapper = mapper
        self._clock = clock
        self._rate = rate
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._backlogs = Backlogs(pending, clock)
        self._enough = FEW

    def adopt(self, rate: float, pending: int) -> None:
        """Go on with other limits."""
        self._rate = rate
        self._buckets.clear()
        self._backlogs.most = pending

    async def take(self, events: Sequence[Event | Malformed], proof: Proof, by: Name | None = None) -> list[Verdict]:
        """A verdict for each event, in their order; `by` is the only EventSource that may be meant, if there is one."""
        now, at = self._clock.now(), self._clock.monotonic()
        senders: dict[str, _Sender | BadEvent] = {}
        found: list[NewEvent | Verdict] = []
        for event in events:
            if isinstance(event, Malformed):
                found.append(_refused(event.id, event.source, event.error))
                continue
            if event.source not in senders:
                senders[event.source] = self._open(await self._sender(event.source, proof, by))
            found.append(self._entry(event, senders[event.source], now, at))
        return await self._record(found)

    async def strangers(self, heads: Sequence[Head | None], proof: Proof, by: Name | None = None) -> list[Verdict]:
        """Verdicts on a request of which `proof` makes no event anybody's; empty when it may be worth decoding."""
        refusals: dict[str, BadEvent] = {}
        for head in heads:
            if head is None or head.source in refusals:
                continue
            sender = await self._sender(head.source, proof, by)
            if not isinstance(sender, BadEvent):
                return []
            refusals[head.source] = sender
        if not refusals:
            return []
        other = next(iter(refusals.values()))
        told = [head or Head("") for head in heads]
        return [_refused(one.id[:LONGEST], one.source[:LONGEST], refusals.get(one.source, other)) for one in told]

    async def take_known(self, events: Sequence[Event], sender: EventSource) -> list[Verdict]:
        """The same for events whose sender has been found."""
        now, at, opened = self._clock.now(), self._clock.monotonic(), self._open(sender)
        return await self._record([self._entry(event, opened, now, at) for event in events])

    async def _sender(self, source: str, proof: Proof, by: Name | None) -> EventSource | BadEvent:
        known = proof.senders.get(source)
        if known is None:
            known = proof.senders[source] = await self._find(source, proof, by)
        return known

    async def _find(self, source: str, proof: Proof, by: Name | None) -> EventSource | BadEvent:
        candidates = self._sources.matching(source)
        if by is not None:
            candidates = [one for one in candidates if (one.namespace, one.name) == by]
        try:
            return await proof.sender(candidates, f"events of the source {shown(source)}")
        except BadEvent as error:
            return error

    def _open(self, sender: EventSource | BadEvent) -> _Sender | BadEvent:
        """The sender, unless too many of its events wait: then TryLater (429)."""
        if isinstance(sender, BadEvent):
            return sender
        if not self._backlogs.is_full(sender):
            return _Sender(sender, self._bucket(sender))
        message = f"too many events of EventSource {sender.namespace}/{sender.name} wait for their effect"
        return TryLater(HTTPStatus.TOO_MANY_REQUESTS, message, BACKLOG_WAIT)

    def _entry(self, event: Event, sender: _Sender | BadEvent, now: datetime, at: float) -> NewEvent | Verdict:
        if isinstance(sender, BadEvent):
            return _refused(event.id, event.source, sender)
        try:
            if wait := sender.bucket.take(at):
                raise self._too_fast(sender.source, wait)
            return self._checked(event, sender.source, now)
        except BadEvent as error:
            return _refused(event.id, event.source, error)

    def _checked(self, event: Event, sender: EventSource, now: datetime) -> NewEvent:
        """Raises BadEvent (400, 403)."""
        sequence = EventSequence(event.extensions.get("sequence", ""), event.extensions.get("sequencetype", ""))
        if fault := sequence.fault:
            raise BadEvent(HTTPStatus.BAD_REQUEST, fault)
        mapped = self._mapper.map(sender, event)
        if reason := permits.refusal(sender, mapped):
            raise BadEvent(HTTPStatus.FORBIDDEN, reason)
        return NewEvent(sender, event, mapped, now)

    def _too_fast(self, sender: EventSource, wait: float) -> TryLater:
        message = f"EventSource {sender.namespace}/{sender.name} sends more than {self._rate:g} events a second"
        return TryLater(HTTPStatus.TOO_MANY_REQUESTS, message, wait)

    async def _record(self, found: Sequence[NewEvent | Verdict]) -> list[Verdict]:
        entries = [one for one in found if isinstance(one, NewEvent)]
        try:
            recorded = iter(await self._ledger.record(entries)) if entries else iter(())
        except KnodelError as error:
            unkept = _unkept(error)
            return [
                _refused(one.event.id, one.event.source, unkept) if isinstance(one, NewEvent) else one for one in found
            ]
        return [self._told(one, next(recorded)) if isinstance(one, NewEvent) else one for one in found]

    def _told(self, entry: NewEvent, recorded: Recorded | KnodelError) -> Verdict:
        if recorded is Recorded.TAKEN:
            self._backlogs.took(entry.event_source)
        return _taken(entry, recorded)

    def _bucket(self, sender: EventSource) -> TokenBucket:
        key = (sender.namespace, sender.name)
        bucket = self._buckets.get(key)
        if bucket is None:
            self._forget_gone()
            bucket = self._buckets[key] = TokenBucket(self._rate)
        return bucket

    def _forget_gone(self) -> None:
        """EventSources that are no more, each time that twice as many are known: names may come and go for ever."""
        if len(self._buckets) < self._enough:
            return
        for key in [key for key in self._buckets if self._sources.named(*key) is None]:
            del self._buckets[key]
            self._backlogs.forget(key)
        self._enough = max(FEW, 2 * len(self._buckets))


def _taken(entry: NewEvent, recorded: Recorded | KnodelError) -> Verdict:
    if isinstance(recorded, KnodelError):
        return _refused(entry.event.id, entry.event.source, _unkept(recorded))
    if recorded is Recorded.OTHER:
        return _refused(entry.event.id, entry.event.source, BadEvent(HTTPStatus.BAD_REQUEST, USED))
    message = recorded.value
    if recorded is Recorded.TAKEN and entry.mapped.ignored:
        message = f"{IGNORED}: {entry.mapped.ignored}"
    return Verdict(entry.event.id, entry.event.source, HTTPStatus.ACCEPTED, message)


def _refused(id: str, source: str, error: BadEvent) -> Verdict:
    return Verdict(id, source, error.status, str(error), error)


def _unkept(error: KnodelError) -> BadEvent:
    """The store's own words stay in the log: a sender may not see names of what it may not touch."""
    if isinstance(error, Invalid):
        refused = BadEvent(HTTPStatus.BAD_REQUEST, "the event cannot be kept as it is: it is too large, or not allowed")
        refused.__cause__ = error
        return refused
    wait = (error.retry_after if isinstance(error, Unavailable) else None) or 1.0
    failure = TryLater(HTTPStatus.SERVICE_UNAVAILABLE, "the event cannot be kept now: send it again", wait)
    failure.__cause__ = error
    return failure
