"""Jobs that ended while nobody listened: at our start they are listed once, and recorded as if their event had come.

An ApiServerSource tries a delivery a few times and then forgets it, and what changed while it was away it never tells.
The effect's id is the job's uid however its end came to us, so one that was heard of is a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from clusters.base.api import ObjectList
from clusters.base.backoff import Backoff
from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, Invalid, KnodelError, NotFound
from clusters.base.objects import Kind, Object, name_of, namespace_of, uid_of
from eventing.auth import permits
from eventing.errors import BadEvent
from eventing.mapping.jobs import JOB_KINDS, RESOURCE_UPDATE, SOURCE
from eventing.mapping.presets import JOB
from eventing.objects.event import Event
from eventing.objects.ports import EventSource, Ledger, Mapper, NewEvent, Recorded

log = logging.getLogger(__name__)

OLDEST: Final = timedelta(days=7)
"""Since a job's end: younger than what the ledger forgets by age (`expiry.Bounds`), so that none is recorded anew;
by number it forgets records of jobs last."""
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""s between attempts to list, doubled from the first on."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT)
ATTEMPTS: Final = 8
"""For each kind: about two minutes, as long as an API server takes to come back."""
AT_ONCE: Final = 100
"""Entries of one call of the ledger."""
ABSENT: Final = "the cluster has no such kind"
FORBIDDEN: Final = "they may not be listed"
_WILD: Final = "*?["


class Lister(Protocol):
    """Who lists objects; a `Cluster` is one."""

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """All of the kind, in one namespace or in all. Raises ClusterError; NotFound for a kind that is not there."""
        ...


class FinishedJobs:
    """Looks once, for the EventSources with the preset `job`; `sources` tells them when it is called."""

    def __init__(
        self,
        lister: Lister,
        sources: Callable[[], Iterable[EventSource]],
        mapper: Mapper,
        ledger: Ledger,
        clock: Clock,
        oldest: timedelta = OLDEST,
    ) -> None:
        """`oldest`: since a job's end, at most; the ledger must not have forgotten what is younger."""
        self._lister = lister
        self._sources = sources
        self._mapper = mapper
        self._ledger = ledger
        self._clock = clock
        self._oldest = min(oldest, OLDEST)

    async def run(self) -> int:
        """Record what was missed; returns how much was. A kind that cannot be read is logged and passed over."""
        listened = [source for source in self._sources() if source.mapping is not None and source.mapping.preset == JOB]
        unread: dict[str, list[str]] = {}
        missed = sum([await self._record(job.kind, listened, unread) for job in JOB_KINDS]) if listened else 0
        for why, kinds in unread.items():
            log.info("finished jobs are not looked for where %s: %s", why, ", ".join(kinds))
        return missed

    async def _record(self, kind: Kind, listened: Sequence[EventSource], unread: dict[str, list[str]]) -> int:
        """Kinds that cannot be read are added to `unread`, by the reason."""
        missed = 0
        for attempt in range(1, ATTEMPTS + 1):
            try:
                missed = await self._record_once(kind, listened)
                break
            except (NotFound, Forbidden) as error:
                why = ABSENT if isinstance(error, NotFound) else FORBIDDEN
                unread.setdefault(why, []).append(kind.resource)
                break
            except KnodelError as error:
                log.warning("finished %s cannot be looked for (attempt %d of %d): %s", kind, attempt, ATTEMPTS, error)
            await self._clock.sleep(_BACKOFF.delay(attempt - 1))
        return missed

    async def _record_once(self, kind: Kind, listened: Sequence[EventSource]) -> int:
        """Raises KnodelError when some may be recorded later."""
        now, missed = self._clock.now(), 0
        for namespace in namespaces_of(listened):
            jobs = (await self._lister.list(kind, namespace)).items
            entries = [
                entry for source in listened for entry in missed_of(source, kind, jobs, self._mapper, now, self._oldest)
            ]
            for first in range(0, len(entries), AT_ONCE):
                recorded = await self._ledger.record(self._arrived(entries[first : first + AT_ONCE]))
                _check_recorded(kind, recorded)
                missed += sum(one is Recorded.TAKEN for one in recorded)
        if missed:
            log.info("%d finished %s were recorded of which no event had come", missed, kind)
        return missed

    def _arrived(self, entries: Sequence[NewEvent]) -> list[NewEvent]:
        """They come now: a look takes long where jobs are many, and live events are recorded meanwhile."""
        now = self._clock.now()
        return [msgspec.structs.replace(entry, received_at=now) for entry in entries]


def _check_recorded(kind: Kind, recorded: Iterable[Recorded | KnodelError]) -> None:
    """What can never be recorded keeps no other back: too large, or its namespace is ending. Raises all else."""
    for one in recorded:
        if isinstance(one, (Invalid, NotFound, Forbidden)):
            log.warning("one of the finished %s is not recorded: %s", kind, one)
        elif isinstance(one, KnodelError):
            raise one


def namespaces_of(sources: Iterable[EventSource]) -> Sequence[str | None]:
    """Where jobs may be whose Models these EventSources are for; [None] is everywhere."""
    found: set[str] = set()
    for source in sources:
        for pattern in source.models:
            namespace, slash, _ = pattern.rpartition("/")
            found.add(namespace if slash else source.namespace)
    if any(sign in namespace for namespace in found for sign in _WILD):
        return [None]
    return sorted(found)


def missed_of(
    source: EventSource,
    kind: Kind,
    jobs: Iterable[Object],
    mapper: Mapper,
    now: datetime,
    oldest: timedelta = OLDEST,
) -> list[NewEvent]:
    """What `source` lets in of these jobs: those that completed within `oldest`, say for which Model, and may."""
    entries = []
    for job in jobs:
        event = event_of(kind, job)
        try:
            mapped = mapper.map(source, event)
        except BadEvent as error:
            log.warning("%s %s means nothing: %s", kind, event.id, error)
            continue
        is_late = mapped.time is None or now - mapped.time > oldest
        if not mapped.ignored and not is_late and not permits.refusal(source, mapped):
            entries.append(NewEvent(source, event, mapped, now))
    return entries


def event_of(kind: Kind, job: Object) -> Event:
    """The event of a job as an ApiServerSource with `mode: Resource` sends it; items of a list lack their kind."""
    return Event(
        id=uid_of(job),
        source=SOURCE,
        type=RESOURCE_UPDATE,
        subject=f"/apis/{kind.api_version}/namespaces/{namespace_of(job)}/{kind.plural}/{name_of(job)}",
        datacontenttype="application/json",
        data={**job, "apiVersion": kind.api_version, "kind": kind.kind},
    )
