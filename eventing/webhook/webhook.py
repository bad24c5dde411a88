"""The webhook put together over a cluster; where it listens is its composition root's matter."""

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
from eventing.limits import DEFAULTS, Limits
from eventing.mapping.event_source import EventSource, Reach, nowhere, read_event_source, within_reach
from eventing.mapping.mapper import EventMapper
from eventing.objects.ports import Mapper
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
    limits: Limits = DEFAULTS,
    reach: Reach = nowhere,
) -> EventsApp:
    """The application over the EventSources of an informer; `fetcher` asks OIDC issuers for their keys.

    `reach`: which of them may speak of Models in other namespaces than their own.
    """
    tokens = Tokens(CachedIssuerKeys(fetcher, clock), clock, limits.leeway)
    authenticator = Authenticator(SecretKeys(cluster, clock), tokens, clock, limits.tolerance)
    sources, ledger = InformedSources(event_sources, reach), ModelEventLedger(cluster)
    return EventsApp(sources, ledger, authenticator, mapper or EventMapper(), limits, clock)


def make_finished_jobs(
    cluster: Cluster, event_sources: Informer, clock: Clock, *, reach: Reach = nowhere, oldest: timedelta = OLDEST
) -> FinishedJobs:
    """The search for jobs of which no event came, to be run once the informer is synced; `oldest`: since their end."""

    def sources() -> Iterator[EventSource]:
        for obj in event_sources:
            with suppress(Invalid):  # `InformedSources` says so
                yield within_reach(read_event_source(obj), reach)

    return FinishedJobs(cluster, sources, EventMapper(), ModelEventLedger(cluster), clock, oldest)
