"""Which of Knative's flags a Model lacks: from Knative's ConfigMaps, read by name and remembered a while."""

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

REMEMBERED = 10.0
"""s that what a ConfigMap says is believed: an administrator who sets a flag sees the effect soon."""


class Flags(Protocol):
    """Knowledge of a cluster's flags."""

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """Those of `needed` that are off. Raises what the cluster raises."""
        ...


class AllOn:
    """Where no flags are: the stand-in can do all that they switch on."""

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """None."""
        return ()


class ConfigMapFlags:
    """Knative's ConfigMaps."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, Mapping[str, str] | None]] = {}

    async def missing(self, needed: Collection[Flag]) -> tuple[Flag, ...]:
        """Those that are off; what may not be read is left to Knative's webhook to refuse."""
        found = []
        for flag in needed:
            data = await self._data(flag.namespace, flag.configmap)
            if data is not None and not flag.is_on(data):
                found.append(flag)
        return tuple(found)

    async def _data(self, namespace: str, name: str) -> Mapping[str, str] | None:
        now = self._clock.monotonic()
        known = self._known.get((namespace, name))
        if known is not None and now - known[0] < REMEMBERED:
            return known[1]
        data = await self._read(namespace, name)
        self._known[namespace, name] = (now, data)
        return data

    async def _read(self, namespace: str, name: str) -> Mapping[str, str] | None:
        try:
            return dict((await self._cluster.get(CONFIG_MAP, name, namespace)).get("data") or {})
        except NotFound:
            return MappingProxyType({})  # Knative's defaults hold
        except Forbidden as error:
            log.warning("Knative's flags are unknown: %s", error)
            return None
