"""Assembles the webhook over a cluster. The composition root decides where it listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Invalid
from clusters.runtime.informer import Informer
from eventing.auth.auth import Authenticator
from eventing.auth.hmac_keys import SecretKeys
from eventing.auth.issuers import CachedIssuerKeys, Fetcher
from eventing.auth.oidc import Tokens
from eventing.limits import DEFAULTS, WebhookLimits
from eventing.mapping.event_source import Reach, nowhere, read_event_source, within_reach
from eventing.mapping.training import EventMapper
from eventing.objects.ports import EventSource, Mapper
from eventing.webhook.app import EventsApp
from eventing.webhook.finished_jobs import OLDEST, FinishedJobs
from eventing.webhook.ledger import ModelEventLedger
from eventing.webhook.sources import InformedSources


def make_webhook(
    cluster: Cluster,
    event_sources: Informer,
    fetcher: Fetcher,
    clock: Clock,
    *,
    mapper: Mapper | None = None,
    limits: WebhookLimits = DEFAULTS,
    reach: Reach = nowhere,
) -> EventsApp:
    """Return the application for the EventSources of an informer; `fetcher` gets the keys of OIDC issuers.

    `reach`: whether EventSources of a namespace may change Models in other namespaces.
    """
    tokens = Tokens(CachedIssuerKeys(fetcher, clock), clock, limits.leeway)
    authenticator = Authenticator(SecretKeys(cluster, clock), tokens, clock, limits.tolerance)
    sources, ledger = InformedSources(event_sources, reach), ModelEventLedger(cluster)
    return EventsApp(sources, ledger, authenticator, mapper or EventMapper(), limits, clock)


def make_finished_jobs(
    cluster: Cluster, event_sources: Informer, clock: Clock, *, reach: Reach = nowhere, oldest: timedelta = OLDEST
) -> FinishedJobs:
    """Return the search for finished jobs without an event, to be run once the informer is synced.

    `oldest`: maximum time since a job's end.
    """

    def sources() -> Iterator[EventSource]:
        for obj in event_sources:
            with suppress(Invalid):  # `InformedSources` logs it
                yield within_reach(read_event_source(obj), reach)

    return FinishedJobs(cluster, sources, EventMapper(), ModelEventLedger(cluster), clock, oldest)
