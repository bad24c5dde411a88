"""Reads HMAC keys from Secrets, with a short cache. The webhook gets Secrets by name; it may not list or watch them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.errors import ClusterError, NotFound, Unavailable
from clusters.base.objects import SECRET, Object

log = logging.getLogger(__name__)

CURRENT: Final = "current"
PREVIOUS: Final = "previous"
"""Names of the keys in the Secret's data. The previous key is valid until senders use the current one."""
FRESH: Final = 2.0
"""Seconds between two reads of a Secret at least, for unknown signatures and after failures."""
KEPT: Final = 30.0
"""Seconds after which a Secret is read again. A removed key is accepted for that long."""
STALE: Final = 300.0
"""Seconds that known keys are used while the cluster is unreachable."""


class Keys(Protocol):
    """The keys of EventSources."""

    async def secrets(self, namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        """Return the keys of a Secret, the current one first; empty if there are none.

        `again`: the cached keys did not match, so the Secret may have changed. Raises ClusterError when it cannot be
        read.
        """
        ...


@dataclass(frozen=True, slots=True)
class _CachedSecret:
    """`attempted` and `read` are the monotonic times of the last attempt and the last success."""

    attempted: float
    read: float
    texts: tuple[str, ...] = ()
    failure: ClusterError | None = None


class SecretKeys:
    """`Keys` of a cluster's Secrets."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cache: dict[tuple[str, str], _CachedSecret] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def secrets(self, namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        """Return the keys as `Keys` specifies. Only Secrets of EventSources are requested, so the cache is bounded."""
        key = (namespace, name)
        known = self._cache.get(key)
        lifetime = FRESH if again or (known and known.failure) else KEPT
        if known is None or self._clock.monotonic() - known.attempted >= lifetime:
            async with self._locks.setdefault(key, asyncio.Lock()):
                if self._cache.get(key) is known:  # else another task has read it meanwhile
                    self._cache[key] = await self._read(namespace, name, known)
        found = self._cache[key]
        if found.failure is not None and self._clock.monotonic() - found.read > STALE:
            raise Unavailable("the Secret cannot be read") from found.failure
        return found.texts

    async def _read(self, namespace: str, name: str, known: _CachedSecret | None) -> _CachedSecret:
        """Read the Secret. A missing Secret has no keys; any other error keeps the known keys."""
        try:
            texts = keys_of(await self._cluster.get(SECRET, name, namespace))
        except NotFound as error:
            log.warning("Secret %s/%s does not exist, so it has no keys: %s", namespace, name, error)
            texts = ()
        except ClusterError as error:
            log.warning("Secret %s/%s cannot be read: %s", namespace, name, error)
            now = self._clock.monotonic()
            return _CachedSecret(now, known.read if known else float("-inf"), known.texts if known else (), error)
        now = self._clock.monotonic()
        return _CachedSecret(now, now, texts)


def keys_of(secret: Object) -> tuple[str, ...]:
    """Return `current`, then `previous`, without surrounding white space; a value that is not UTF-8 text is skipped."""
    plain: Mapping[str, Any] = secret.get("stringData") or {}
    encoded: Mapping[str, Any] = secret.get("data") or {}
    found = []
    for name in (CURRENT, PREVIOUS):
        try:
            text = plain[name] if name in plain else base64.b64decode(encoded.get(name, "")).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        if text.strip():
            found.append(text.strip())
    return tuple(found)
