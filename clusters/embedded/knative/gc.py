"""Garbage collection of Revisions: which Revisions of a Configuration are deleted, and when.

Source: knative/serving `pkg/reconciler/gc`. Some are kept at any age: the latest ready Revision, those with the
annotation `serving.knative.dev/no-gc`, those that a Route refers to or that no Route has processed yet, and the newest
`min_non_active` of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime

from clusters.base.clock import Clock
from clusters.base.objects import (
    ANNOTATION_NO_GC,
    CONFIGURATION,
    REVISION,
    Key,
    Object,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    parse_timestamp,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.configuration import INDEX, configuration_key
from clusters.embedded.knative.defaults import RevisionGC
from clusters.runtime.controller import Controller


class RevisionCollector:
    """Delete stale Revisions."""

    def __init__(self, client: CachedClient, clock: Clock, settings: RevisionGC) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings

    def controller(self) -> Controller:
        """Return the controller, triggered by Configurations and Revisions, and when a Revision becomes stale."""
        controller = Controller("knative collector", self.reconcile, workers=1)
        controller.watches(self._client.informer(CONFIGURATION))
        controller.watches_mapped(self._client.informer(REVISION), configuration_key)
        return controller

    async def reconcile(self, key: Key) -> float | None:
        """Collect the Revisions of a Configuration. Return the seconds until the next of them becomes stale."""
        configuration = self._client.get(CONFIGURATION, key.name, key.namespace)
        if configuration is None or is_deleting(configuration):
            return None
        revisions = self._client.informer(REVISION).indexed(INDEX, str(key))
        candidates = non_active(revisions, configuration)
        doomed = stale(candidates, self._settings, self._clock.now())
        for revision in doomed:
            await self._client.delete(REVISION, revision)
        left = [revision for revision in candidates if revision not in doomed]
        return next_collection(left, self._settings, self._clock.now())


def non_active(revisions: Iterable[Object], configuration: Object) -> list[Object]:
    """Return the Revisions that may be deleted, those that were inactive for the longest time first."""
    latest = (configuration.get("status") or {}).get("latestReadyRevisionName")
    idle = [
        revision
        for revision in revisions
        if name_of(revision) != latest
        and not is_deleting(revision)
        and annotations_of(revision).get(ANNOTATION_NO_GC, "").lower() != "true"
        and labels_of(revision).get(names.LABEL_ROUTING_STATE) == names.STATE_RESERVE
    ]
    return sorted(idle, key=lambda revision: (_last_active(revision), name_of(revision)))


def stale(candidates: Sequence[Object], settings: RevisionGC, now: datetime) -> list[Object]:
    """Return the Revisions to delete: stale ones down to the minimum, and then the oldest down to the maximum."""
    spare = len(candidates) - settings.min_non_active
    if spare <= 0:
        return []
    old = [revision for revision in candidates if _stale_in(revision, settings, now) <= 0][:spare]
    left = [revision for revision in candidates if revision not in old]
    if settings.max_non_active is None or len(left) <= settings.max_non_active:
        return old
    return [*old, *left[: len(left) - settings.max_non_active]]


def next_collection(candidates: Sequence[Object], settings: RevisionGC, now: datetime) -> float | None:
    """Return the seconds until the first candidate becomes stale, or None while there are too few to collect any."""
    if len(candidates) <= settings.min_non_active:
        return None
    wait = min(_stale_in(revision, settings, now) for revision in candidates)
    return max(wait, 0.0) if math.isfinite(wait) else None


def _stale_in(revision: Object, settings: RevisionGC, now: datetime) -> float:
    """Return the seconds until the Revision is stale, at most 0 if it already is. Infinite without any time limit."""
    rules = ((settings.retain_since_create, _created), (settings.retain_since_active, _last_active))
    waits = [retain - (now - since(revision)).total_seconds() for retain, since in rules if retain is not None]
    return max(waits, default=math.inf)


def _last_active(revision: Object) -> datetime:
    """Return when the Revision last began or ceased to be routed to; its creation if it never was."""
    modified = annotations_of(revision).get(names.ANNOTATION_ROUTING_STATE_MODIFIED)
    return parse_timestamp(modified) if modified else _created(revision)


def _created(revision: Object) -> datetime:
    return parse_timestamp(revision["metadata"]["creationTimestamp"])
