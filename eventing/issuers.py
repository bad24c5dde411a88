"""Key sets of OIDC issuers: found by discovery, kept for a while, asked for again when an unknown key shows up.

Only issuers that an EventSource names are asked, whatever a token says. Source: OpenID Connect Discovery 1.0 §4.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm

from clusters.bodies import read_at_most
from clusters.clock import Clock
from eventing.oidc import IssuerUnreachable

log = logging.getLogger(__name__)

KEPT: Final = 600.0
"""s after which a key set is read again; a withdrawn key is taken so long."""
FRESH: Final = 30.0
"""s: no unknown key makes us ask an issuer more often, nor one that does not answer."""
SETTLED: Final = 1.0
"""s after which a key that a set did not have may have come; until it may be asked for, nobody can tell."""
STALE: Final = 3600.0
"""s that known keys are used while their issuer does not answer."""
LARGEST: Final = 1 << 20  # bytes of an answer; key sets have a few KiB
TIMEOUT: Final = 5.0  # s for an answer: a sender waits for it
DISCOVERY: Final = "/.well-known/openid-configuration"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""The IP addresses of a host. Raises OSError."""


class Fetcher(Protocol):
    """Asks issuers."""

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """Its key set (RFC 7517 §5). Raises IssuerUnreachable."""
        ...


@dataclass(slots=True)
class _KeySet:
    asked: float
    read: float
    keys: tuple[jwt.PyJWK, ...]
    failed: bool = False


class CachedIssuerKeys:
    """`oidc.IssuerKeys` over a fetcher; one question at a time to each issuer."""

    def __init__(self, fetcher: Fetcher, clock: Clock) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._sets: dict[str, _KeySet] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def key(self, issuer: str, kid: str) -> jwt.PyJWK | None:
        """As `IssuerKeys` says."""
        known = self._sets.get(issuer)
        found = _find(known, kid)
        if known is not None and self._clock.monotonic() - known.asked < (
            KEPT if found and not known.failed else FRESH
        ):
            return self._answer(known, kid, found)
        async with self._locks.setdefault(issuer, asyncio.Lock()):
            if self._sets.get(issuer) is known:  # else somebody else has asked meanwhile
                self._sets[issuer] = await self._ask(issuer, known)
        return self._answer(self._sets[issuer], kid, _find(self._sets[issuer], kid))

    async def _ask(self, issuer: str, known: _KeySet | None) -> _KeySet:
        try:
            keys = _parsed(await self._fetcher.fetch(issuer))
        except IssuerUnreachable as error:
            log.warning("issuer %s: %s", issuer, error)
            now = self._clock.monotonic()
            return _KeySet(now, known.read if known else float("-inf"), known.keys if known else (), failed=True)
        now = self._clock.monotonic()
        return _KeySet(now, now, keys)

    def _answer(self, known: _KeySet, kid: str, found: jwt.PyJWK | None) -> jwt.PyJWK | None:
        """What failed is for our log: it would tell a sender what answers where in our network."""
        now = self._clock.monotonic()
        if known.failed and (found is None or now - known.read > STALE):
            raise IssuerUnreachable("the keys of the token's issuer cannot be had now: send it again")
        if found is None and kid and now - known.asked > SETTLED:
            raise IssuerUnreachable("the token's issuer is asked for its newest keys in a moment: send it again")
        return found


def _find(known: _KeySet | None, kid: str) -> jwt.PyJWK | None:
    keys = known.keys if known is not None else ()
    if not kid:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == kid), None)


def _parsed(document: Mapping[str, Any]) -> tuple[jwt.PyJWK, ...]:
    """The keys for signatures; those that are not understood are passed over (RFC 7517 §5)."""
    members = document.get("keys")
    found = tuple(key for member in members if (key := _key(member))) if isinstance(members, list) else ()
    if not found:
        raise IssuerUnreachable("its key set has no key that can be used here")
    return found


def _key(member: Any) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK(member)
    except (jwt.PyJWTError, AttributeError, LookupError, TypeError, ValueError, UnsupportedAlgorithm):
        return None
    return key if key.key_type != "oct" and key.public_key_use in (None, "sig") else None


class Discovery:
    """Finds key sets as OpenID Connect Discovery says. No redirects; https only, but for issuers on this machine.

    Tenants name issuers, and an issuer its key set's address: that is on the issuer's own host, or a public one.
    """

    def __init__(self, session: Callable[[], aiohttp.ClientSession], resolve: Resolve | None = None) -> None:
        """`resolve`: the IP addresses of a host, as the system tells them unless it is given."""
        self._session = session
        self._resolve = resolve or addresses_of

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """As `Fetcher` says."""
        document = await self._get(issuer.rstrip("/") + DISCOVERY)
        if document.get("issuer") != issuer:
            raise IssuerUnreachable(f"{issuer} calls itself {str(document.get('issuer'))[:100]!r}: name it so")
        address = document.get("jwks_uri")
        if not isinstance(address, str):
            raise IssuerUnreachable(f"{issuer} does not say where its keys are (jwks_uri)")
        if not await self._is_allowed(address, issuer):
            raise IssuerUnreachable(
                f"{issuer} has its keys at {address[:200]!r}: neither its own host nor a public one"
            )
        return await self._get(address)

    async def _is_allowed(self, address: str, issuer: str) -> bool:
        if not is_safe(address):
            return False
        host, own = urlsplit(address).hostname or "", urlsplit(issuer).hostname or ""
        if {host, own} <= LOOPBACK:
            return True
        if urlsplit(address).scheme != "https":
            return False
        try:
            return host == own or all(map(is_public, await self._resolve(host)))
        except OSError as error:
            raise IssuerUnreachable(f"{host} cannot be resolved: {error}") from error

    async def _get(self, address: str) -> Mapping[str, Any]:
        if not is_safe(address):
            raise IssuerUnreachable(f"{address[:200]!r} is not asked: an issuer has an https address")
        limit = aiohttp.ClientTimeout(total=TIMEOUT)
        try:
            async with self._session().get(address, allow_redirects=False, timeout=limit) as answer:
                if answer.status != 200:
                    raise IssuerUnreachable(f"{address} answered {answer.status}")
                content = await read_at_most(answer, LARGEST)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise IssuerUnreachable(f"{address} cannot be asked: {error or 'no answer in time'}") from error
        if len(content) > LARGEST:
            raise IssuerUnreachable(f"{address} answered with more than {LARGEST} bytes")
        return read_document(content, address)


async def addresses_of(host: str) -> Sequence[str]:
    """What the system resolves it to. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


def is_public(address: str) -> bool:
    """Whether the IP address is one of the internet, not of this machine or a private network."""
    found = ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_global


def is_safe(address: str) -> bool:
    """Whether the address may be asked: https, or on this machine."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        )
    except ValueError:
        return False


def read_document(body: bytes, address: str) -> Mapping[str, Any]:
    """The JSON object of an answer. Raises IssuerUnreachable."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise IssuerUnreachable(f"{address} answered with what is no JSON object") from error
