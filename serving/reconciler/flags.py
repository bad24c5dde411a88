"""Find the flags of Knative that a Model needs and that are off, from Knative's ConfigMaps."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Protocol

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, NotFound
from clusters.base.objects import CONFIG_MAP
from serving.makers.knative_flags import Flag

log = logging.getLogger(__name__)

CACHED = 10.0
"""s for which a ConfigMap is cached: a flag that an administrator sets takes effect soon."""


class Flags(Protocol):
    """A source of a cluster's flags. `parts_of_gpus`: its kubelet gives a Pod a part of a GPU by an annotation."""

    parts_of_gpus: bool

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """Return the flags of `needed` that are off. Raises what the cluster raises."""
        ...


class AllOn:
    """A cluster without flags: the embedded cluster has all their features."""

    parts_of_gpus = True

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """Return no flags."""
        return ()


class ConfigMapFlags:
    """The flags in Knative's ConfigMaps."""

    parts_of_gpus = False

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, str] | None]] = {}

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """Return the flags that are off. A ConfigMap that must not be read counts as on: Knative's webhook decides."""
        found = []
        for flag in needed:
            data = await self._config_map(flag.namespace, flag.configmap)
            if data is not None and not flag.is_on(data):
                found.append(flag)
        return tuple(found)

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap, cached; None when it must not be read."""
        now = self._clock.monotonic()
        known = self._known.get((namespace, name))
        if known is not None and now - known[0] < CACHED:
            return known[1]
        data: Mapping[str, str] | None
        try:
            data = dict((await self._cluster.get(CONFIG_MAP, name, namespace)).get("data") or {})
        except NotFound:
            data = MappingProxyType({})  # Knative uses its defaults
        except Forbidden as error:
            log.warning("cannot read Knative's flags: %s", error)
            data = None
        self._known[namespace, name] = (now, data)
        return data
