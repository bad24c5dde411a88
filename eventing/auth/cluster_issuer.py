"""The issuer of a cluster's service account tokens, which the API server itself tells the keys of.

Its address is often one that only the API server answers at, under a certificate of the cluster's own; Knative
Eventing's senders have such tokens. Source: Kubernetes, "Service account issuer discovery".
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from clusters.base.errors import ClusterError, Forbidden, NotFound
from eventing.auth.issuers import DISCOVERY, Fetcher
from eventing.auth.oidc import IssuerUnreachable

log = logging.getLogger(__name__)

ROLE: Final = "system:service-account-issuer-discovery"
"""Which every service account has, unless it was taken away."""
KEYS: Final = "/openid/v1/jwks"

Get = Callable[[str], Awaitable[Any]]
"""Asks the API server for a path; the JSON of its answer. Raises ClusterError."""


class ClusterIssuer:
    """`Fetcher` that asks the API server about its own issuer, and `others` about all others."""

    def __init__(self, get: Get, others: Fetcher) -> None:
        self._get = get
        self._others = others
        self._own: str | None = None

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """As `Fetcher` says."""
        try:
            if self._own is None:
                self._own = await self._issuer()
            if issuer == self._own:
                keys: Mapping[str, Any] = await self._get(KEYS)
                return keys
        except ClusterError as error:
            raise IssuerUnreachable(f"the API server does not tell its issuer's keys: {error}") from error
        return await self._others.fetch(issuer)

    async def _issuer(self) -> str:
        """Empty where the API server does not tell us: then it is asked for as any other issuer is."""
        try:
            return str((await self._get(DISCOVERY)).get("issuer"))
        except (Forbidden, NotFound) as error:
            log.warning("the API server does not tell its issuer (ClusterRole %s): %s", ROLE, error)
            return ""
