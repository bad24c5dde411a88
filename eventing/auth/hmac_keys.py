"""Keys of Secrets, kept for a moment: the webhook may get the Secrets that it knows by name, and never list them."""

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
"""Keys of the Secret's data; the latter while senders change over."""
FRESH: Final = 2.0
"""s: what is younger is not asked for again, whatever comes signed, nor who has just failed to answer."""
KEPT: Final = 30.0
"""s after which a Secret is read again: so long a withdrawn key is taken at most."""
STALE: Final = 300.0
"""s that keys are used while the cluster does not answer."""


class Keys(Protocol):
    """Where the keys of an EventSource are."""

    async def secrets(self, namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        """Its texts, the present one first; empty when there are none. `again`: those known were not enough.

        Raises ClusterError when it cannot be told.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    asked: float
    read: float
    texts: tuple[str, ...] = ()
    failure: ClusterError | None = None


class SecretKeys:
    """`Keys` of a cluster's Secrets."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}

    async def secrets(self, namespace: str, name: str, *, again: bool = False) -> tuple[str, ...]:
        """As `Keys` says; the number of Secrets asked for is that of EventSources."""
        key = (namespace, name)
        known = self._known.get(key)
        if known is None or not self._is_fresh(known, again):
            async with self._locks.setdefault(key, asyncio.Lock()):
                if self._known.get(key) is known:  # else somebody else has asked meanwhile
                    self._known[key] = await self._ask(namespace, name, known)
        return self._answer(self._known[key])

    def _is_fresh(self, known: _Known, again: bool) -> bool:
        return self._clock.monotonic() - known.asked < (FRESH if again or known.failure else KEPT)

    async def _ask(self, namespace: str, name: str, known: _Known | None) -> _Known:
        """That we may not read it says nothing of the sender: only a Secret that is not there has no keys."""
        try:
            texts = await self._read(namespace, name)
        except ClusterError as error:
            log.warning("Secret %s/%s cannot be read: %s", namespace, name, error)
            now = self._clock.monotonic()
            return _Known(now, known.read if known else float("-inf"), known.texts if known else (), error)
        now = self._clock.monotonic()
        return _Known(now, now, texts)

    def _answer(self, known: _Known) -> tuple[str, ...]:
        if known.failure is not None and self._clock.monotonic() - known.read > STALE:
            raise Unavailable("the Secret cannot be read") from known.failure
        return known.texts

    async def _read(self, namespace: str, name: str) -> tuple[str, ...]:
        try:
            return keys_of(await self._cluster.get(SECRET, name, namespace))
        except NotFound as error:
            log.warning("Secret %s/%s gives no keys: %s", namespace, name, error)
            return ()


def keys_of(secret: Object) -> tuple[str, ...]:
    """`current`, then `previous`, where they are texts; white space around them is none of theirs."""
    plain: Mapping[str, Any] = secret.get("stringData") or {}
    encoded: Mapping[str, Any] = secret.get("data") or {}
    found = []
    for name in (CURRENT, PREVIOUS):
        text = (plain[name] if name in plain else _text(encoded.get(name, ""))).strip()
        if text:
            found.append(text)
    return tuple(found)


def _text(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
