"""The proof that a revision's requests reach the activator: asked as Knative's own autoscaler asks.

`GET http://REVISION.NAMESPACE.svc.SUFFIX:PORT/healthz` with `K-Network-Probe: activator` is answered by an activator
with its name, and by queue-proxy with an error (knative/serving `pkg/reconciler/autoscaling/kpa/scaler.go:
activatorProbe`). Each probe has a connection of its own: an older one would still lead to where the Service led before.
"""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver

from clusters.base.objects import Key
from clusters.net.session import LazySession

log = logging.getLogger(__name__)

CLUSTER_DOMAIN: Final = "cluster.local"
"""Kubernetes' default for the names of Services."""
PATH: Final = "/healthz"
NAME: Final = "activator"
HEADERS: Final = {"User-Agent": "Knative-Autoscaling-Probe", "K-Network-Probe": NAME}
TIMEOUT: Final = 2.0
"""s for name, connection and answer; one that takes longer is asked again a second later."""
MOST_FAILURES: Final = 1_000  # revisions of which a failure is remembered, so that it is told once


class ActivatorProber:
    """A `Prober` over HTTP. `resolver`: for who is not in the cluster, whose DNS does not know Services."""

    def __init__(
        self, *, domain: str = CLUSTER_DOMAIN, timeout: float = TIMEOUT, resolver: AbstractResolver | None = None
    ) -> None:
        self._domain = domain
        self._session = LazySession(timeout, partial(aiohttp.TCPConnector, force_close=True, resolver=resolver))
        self._failing: dict[Key, str] = {}
        self.probes = 0
        self.failed = 0  # those that got no answer, or another's

    async def in_path(self, key: Key, port: int) -> bool:
        """Whether a probe by the revision's address, at that port of its Service, reached the activator."""
        self.probes += 1
        url = f"http://{key.name}.{key.namespace}.svc.{self._domain}:{port}{PATH}"
        wrong = await self._ask(url)
        if not wrong:
            self._failing.pop(key, None)
            return True
        self.failed += 1
        self._note(key, f"{url}: {wrong}")
        return False

    async def close(self) -> None:
        """Let go of connections."""
        await self._session.close()

    async def _ask(self, url: str) -> str:
        """What is wrong with the answer, empty when it is the activator's."""
        try:
            async with self._session.open().get(url, headers=HEADERS, allow_redirects=False) as response:
                said = await response.content.read(len(NAME) + 1)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return f"no answer: {str(error) or type(error).__name__}"
        if response.status == HTTPStatus.OK and said == NAME.encode():
            return ""
        return f"status {response.status} and not the activator's word"

    def _note(self, key: Key, why: str) -> None:
        """Say it once: while Knative programs its Services, some probes are to fail."""
        if self._failing.get(key) != why:
            log.info("the activator is not yet proven in the path of %s: %s", key, why)
        if len(self._failing) >= MOST_FAILURES:
            self._failing.clear()
        self._failing[key] = why
