"""A probe that proves that a revision's requests reach the activator, the same as that of Knative's autoscaler.

An activator answers `GET http://REVISION.NAMESPACE.svc.SUFFIX:PORT/healthz` with `K-Network-Probe: activator` with its
name; queue-proxy answers with an error (knative/serving `pkg/reconciler/autoscaling/kpa/scaler.go: activatorProbe`).
Each probe uses a new connection: an older one would still lead to the Service's former endpoints.
"""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver

from clusters.base.objects import Key
from clusters.net.client import FAILURES, HttpClient, failure_reason

log = logging.getLogger(__name__)

CLUSTER_DOMAIN: Final = "cluster.local"
"""Kubernetes' default suffix of the names of Services."""
PATH: Final = "/healthz"
NAME: Final = "activator"
HEADERS: Final = {"User-Agent": "Knative-Autoscaling-Probe", "K-Network-Probe": NAME}
TIMEOUT: Final = 2.0
"""Seconds for DNS, connection and response; a slower probe is repeated a second later."""
MOST_FAILURES: Final = 1_000  # revisions whose failure is remembered, so that it is logged once


class ActivatorProber:
    """A `Prober` over HTTP. `resolver` is for processes outside the cluster, whose DNS does not resolve Services."""

    def __init__(
        self, *, domain: str = CLUSTER_DOMAIN, timeout: float = TIMEOUT, resolver: AbstractResolver | None = None
    ) -> None:
        self._domain = domain
        self._client = HttpClient(timeout, partial(aiohttp.TCPConnector, force_close=True, resolver=resolver))
        self._failing: dict[Key, str] = {}
        self.probes = 0
        self.failed = 0  # without the activator's response

    async def in_path(self, key: Key, port: int) -> bool:
        """Return whether a probe of the revision's address, at that port of its Service, reached the activator."""
        self.probes += 1
        url = f"http://{key.name}.{key.namespace}.svc.{self._domain}:{port}{PATH}"
        wrong = await self._probe(url)
        if not wrong:
            self._failing.pop(key, None)
            return True
        self.failed += 1
        if self._failing.get(key) != wrong:  # logged once: some probes fail while Knative programs its Services
            log.info("the activator is not yet proven in the path of %s: %s: %s", key, url, wrong)
        if len(self._failing) >= MOST_FAILURES:
            self._failing.clear()
        self._failing[key] = wrong
        return False

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _probe(self, url: str) -> str:
        """Return the fault of the response; empty if it is the activator's."""
        try:
            async with self._client.get(url, headers=HEADERS) as response:
                body = await response.content.read(len(NAME) + 1)
        except FAILURES as error:
            return f"no answer: {failure_reason(error)}"
        if response.status == HTTPStatus.OK and body == NAME.encode():
            return ""
        return f"status {response.status}, not the activator's response"
