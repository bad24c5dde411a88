"""Records finished jobs whose events were missed: at start, the webhook lists jobs once and records them as events.

An ApiServerSource retries a delivery a few times and then drops it, and it sends no events for changes during its own
downtime. The id of an event from a job is the job's uid, so a job that was recorded before is a duplicate.
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
from clusters.net.cloudevents import BadEvent, Event
from eventing.auth import permits
from eventing.mapping.jobs import JOB_KINDS, RESOURCE_UPDATE, SOURCE
from eventing.mapping.presets import JOB
from eventing.objects.ports import EventLedger, EventSource, Mapper, NewEvent, RecordResult

log = logging.getLogger(__name__)

OLDEST: Final = timedelta(days=7)
"""Maximum time since a job's end: that of `expiry.RetentionLimits`, so that no job is recorded twice. When there are
too many ModelEvents, those of jobs are deleted last."""
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Seconds between attempts to list jobs, doubled after each."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT)
ATTEMPTS: Final = 8
"""Attempts for each kind: about two minutes, the time that an API server takes to restart."""
AT_ONCE: Final = 100
"""Entries of one call of the ledger."""
ABSENT: Final = "the cluster does not have this kind"
FORBIDDEN: Final = "listing them is forbidden"
_WILD: Final = "*?["


class Lister(Protocol):
    """Lists objects; a `Cluster` is one."""

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> ObjectList:
        """Return all objects of the kind, in one namespace or in all.

        Raises ClusterError; NotFound if the cluster does not have the kind.
        """
        ...


class FinishedJobs:
    """Finds missed jobs once, for the EventSources with the preset `job`; `sources` returns all EventSources."""

    def __init__(
        self,
        lister: Lister,
        sources: Callable[[], Iterable[EventSource]],
        mapper: Mapper,
        ledger: EventLedger,
        clock: Clock,
        oldest: timedelta = OLDEST,
    ) -> None:
        """`oldest`: maximum time since a job's end; the ledger must keep ModelEvents for longer."""
        self._lister = lister
        self._sources = sources
        self._mapper = mapper
        self._ledger = ledger
        self._clock = clock
        self._oldest = min(oldest, OLDEST)

    async def run(self) -> int:
        """Record missed jobs; return their number. A kind that cannot be listed is logged and skipped."""
        sources = [source for source in self._sources() if source.mapping is not None and source.mapping.preset == JOB]
        skipped: dict[str, list[str]] = {}
        missed = sum([await self._record(job.kind, sources, skipped) for job in JOB_KINDS]) if sources else 0
        for reason, kinds in skipped.items():
            log.info("finished jobs of these kinds are not searched, because %s: %s", reason, ", ".join(kinds))
        return missed

    async def _record(self, kind: Kind, sources: Sequence[EventSource], skipped: dict[str, list[str]]) -> int:
        """Return the number of recorded jobs; add a kind that cannot be listed to `skipped` by the reason."""
        missed = 0
        for attempt in range(1, ATTEMPTS + 1):
            try:
                missed = await self._record_once(kind, sources)
                break
            except (NotFound, Forbidden) as error:
                reason = ABSENT if isinstance(error, NotFound) else FORBIDDEN
                skipped.setdefault(reason, []).append(kind.resource)
                break
            except KnodelError as error:
                log.warning("cannot search finished %s (attempt %d of %d): %s", kind, attempt, ATTEMPTS, error)
            await self._clock.sleep(_BACKOFF.delay(attempt - 1))
        return missed

    async def _record_once(self, kind: Kind, sources: Sequence[EventSource]) -> int:
        """Return the number of recorded jobs. Raises KnodelError if some may succeed later."""
        now, missed = self._clock.now(), 0
        for namespace in namespaces_of(sources):
            jobs = (await self._lister.list(kind, namespace)).items
            entries = [
                entry for source in sources for entry in missed_of(source, kind, jobs, self._mapper, now, self._oldest)
            ]
            for first in range(0, len(entries), AT_ONCE):
                # Listing many jobs takes long, and live events are recorded meanwhile: these arrive now.
                arrival = self._clock.now()
                chunk = [
                    msgspec.structs.replace(entry, received_at=arrival) for entry in entries[first : first + AT_ONCE]
                ]
                results = await self._ledger.record(chunk)
                _check_results(kind, results)
                missed += sum(one is RecordResult.NEW for one in results)
        if missed:
            log.info("recorded %d finished %s whose events were missed", missed, kind)
        return missed


def _check_results(kind: Kind, results: Iterable[RecordResult | KnodelError]) -> None:
    """Log errors that no retry can fix (too large, the namespace is being deleted), and raise all others."""
    for one in results:
        if isinstance(one, (Invalid, NotFound, Forbidden)):
            log.warning("one of the finished %s cannot be recorded: %s", kind, one)
        elif isinstance(one, KnodelError):
            raise one


def namespaces_of(sources: Iterable[EventSource]) -> Sequence[str | None]:
    """Return the namespaces of jobs whose Models these EventSources may change; [None] for all namespaces."""
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
    """Return the events of jobs that completed within `oldest`, name a Model, and are permitted by `source`."""
    entries = []
    for job in jobs:
        event = event_of(kind, job)
        try:
            mapped = mapper.map(source, event)
        except BadEvent as error:
            log.warning("%s %s cannot be mapped to a change: %s", kind, event.id, error)
            continue
        is_late = mapped.time is None or now - mapped.time > oldest
        if not mapped.ignored and not is_late and not permits.refusal(source, mapped):
            entries.append(NewEvent(source, event, mapped, now))
    return entries


def event_of(kind: Kind, job: Object) -> Event:
    """Return the event that an ApiServerSource with `mode: Resource` sends for a job.

    Items of a list have no apiVersion and kind, so these are added.
    """
    return Event(
        id=uid_of(job),
        source=SOURCE,
        type=RESOURCE_UPDATE,
        subject=f"/apis/{kind.api_version}/namespaces/{namespace_of(job)}/{kind.plural}/{name_of(job)}",
        datacontenttype="application/json",
        data={**job, "apiVersion": kind.api_version, "kind": kind.kind},
    )
