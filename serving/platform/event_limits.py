"""Convert event settings to the limits of `eventing`. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from eventing.controller.expiry import DEFAULTS as BOUNDS
from eventing.controller.expiry import RetentionLimits
from eventing.limits import DEFAULTS as LIMITS
from eventing.limits import WebhookLimits
from serving.types.settings.settings import EventSettings


def bounds_of(settings: EventSettings) -> RetentionLimits:
    """Return how long, and how many, finished events are kept.

    `failed` and `cap` grow with `kept` and are never below their defaults, because repeated reports of finished jobs
    need them.
    """
    share = settings.kept / BOUNDS.most
    return replace(
        BOUNDS,
        lifetime=timedelta(seconds=settings.retention),
        most=settings.kept,
        failed=max(BOUNDS.failed, round(BOUNDS.failed * share)),
        cap=max(BOUNDS.cap, round(BOUNDS.cap * share)),
    )


def limits_of(settings: EventSettings) -> WebhookLimits:
    """Return how many events are accepted."""
    return replace(LIMITS, events=float(settings.rate), pending=settings.pending)


def issuer_hosts_of(settings: EventSettings) -> frozenset[str]:
    """Return the hosts of OIDC issuers that may have private addresses."""
    return frozenset(filter(None, map(str.strip, settings.issuer_hosts.split(","))))
