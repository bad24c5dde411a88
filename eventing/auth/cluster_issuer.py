"""Gets the keys of the cluster's service account tokens from the API server.

The issuer's URL often leads only to the API server, with a certificate of the cluster's own CA, so OIDC discovery over
the public network fails. Knative Eventing's senders use such tokens. Source: Kubernetes, "Service account issuer
discovery".
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
"""ClusterRole that every service account has by default."""
KEYS: Final = "/openid/v1/jwks"

Get = Callable[[str], Awaitable[Any]]
"""Sends GET for a path to the API server; returns the JSON of the response. Raises ClusterError."""


class ClusterIssuer:
    """A `Fetcher` that gets the cluster issuer's keys from the API server, and all others through `others`."""

    def __init__(self, get: Get, others: Fetcher) -> None:
        self._get = get
        self._others = others
        self._own: str | None = None

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """Return the key set of `issuer`. Raises IssuerUnreachable."""
        try:
            if self._own is None:
                self._own = await self._issuer()
            if issuer == self._own:
                keys: Mapping[str, Any] = await self._get(KEYS)
                return keys
        except ClusterError as error:
            raise IssuerUnreachable(f"cannot read the cluster issuer's keys from the API server: {error}") from error
        return await self._others.fetch(issuer)

    async def _issuer(self) -> str:
        """Return the cluster's issuer, empty if the API server refuses: then `others` handles it like any issuer."""
        try:
            return str((await self._get(DISCOVERY)).get("issuer"))
        except (Forbidden, NotFound) as error:
            log.warning("cannot read the cluster's issuer from the API server (ClusterRole %s): %s", ROLE, error)
            return ""
