"""Key sets of OIDC issuers: found by discovery, kept for a while, asked for again when an unknown key shows up.

Only issuers that an EventSource names are asked, whatever a token says. Tenants write EventSources, so
`clusters.net.ssrf` judges the hosts of an issuer and of its key set. Source: OpenID Connect Discovery 1.0 §4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
import jwt
import msgspec
import yarl
from cryptography.exceptions import UnsupportedAlgorithm

from clusters.base.clock import Clock
from clusters.base.sizes import format_size
from clusters.net.checked_connector import Resolve, checked_connector
from clusters.net.session import read_at_most
from clusters.net.ssrf import AddressRefused, is_allowed, is_loopback
from eventing.auth.oidc import IssuerUnreachable

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
MOST_KEYS: Final = 100  # keys of a set that are read; real sets have a few
LARGEST_KEY: Final = 16_384  # bits of a key: OpenSSL verifies nothing with a larger one
DISCOVERY: Final = "/.well-known/openid-configuration"
_PUBLIC_MEMBERS: Final = frozenset({"kty", "kid", "use", "key_ops", "alg", "crv", "x", "y", "n", "e"})
"""Members of public keys (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2). Private ones are dropped: the check of a private RSA
key takes from a second to an hour, and the issuer decides which."""
_NOT_UNDERSTOOD: Final = (
    jwt.PyJWTError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError, UnsupportedAlgorithm
)  # fmt: skip
"""Errors that PyJWT and cryptography raise for a key that they cannot read."""


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
    members = members[:MOST_KEYS] if isinstance(members, list) else ()
    found = tuple(key for member in members if (key := _key(member)))
    if not found:
        raise IssuerUnreachable("its key set has no key that can be used here")
    return found


def _key(member: Any) -> jwt.PyJWK | None:
    """Return the public key of a member of a key set; None for what is not understood or not meant for signatures."""
    try:
        key = jwt.PyJWK({name: value for name, value in member.items() if name in _PUBLIC_MEMBERS})
        is_small = getattr(key.key, "key_size", 0) <= LARGEST_KEY
    except _NOT_UNDERSTOOD:
        return None
    return key if is_small and key.key_type != "oct" and key.public_key_use in (None, "sig") else None


class Discovery:
    """Find key sets as OpenID Connect Discovery specifies, over https and without redirects.

    Both the issuer and its key set are at public addresses, or at hosts in `allow_hosts`. The key set of a public
    issuer is at a public address. Plain http is accepted for loopback hosts in `allow_hosts`.
    """

    def __init__(self, allow_hosts: Callable[[], frozenset[str]] = frozenset, resolve: Resolve | None = None) -> None:
        """`allow_hosts` returns the hosts that the settings allow now; `resolve` replaces the system's resolver."""
        self._allow_hosts = allow_hosts
        self._resolve = resolve

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """As `Fetcher` says."""
        allowed = self._allow_hosts()
        where = _url(issuer.rstrip("/") + DISCOVERY, allowed)
        document = await self._get(where, allowed)
        if document.get("issuer") != issuer:
            raise IssuerUnreachable(f"{issuer} calls itself {str(document.get('issuer'))[:100]!r}: name it so")
        address = document.get("jwks_uri")
        if not isinstance(address, str):
            raise IssuerUnreachable(f"{issuer} does not say where its keys are (jwks_uri)")
        if not is_allowed(where.host or "", allowed):
            allowed = frozenset()  # a public issuer leads to no host that was allowed for direct use
        return await self._get(_url(address, allowed), allowed)

    async def _get(self, url: yarl.URL, allow_hosts: frozenset[str]) -> Mapping[str, Any]:
        limit = aiohttp.ClientTimeout(total=TIMEOUT)
        connector = checked_connector(allow_hosts, self._resolve)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limit) as session,
                session.get(url, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise IssuerUnreachable(f"{url} answered {answer.status}")
                content = await read_at_most(answer, LARGEST)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AddressRefused) as error:
            raise IssuerUnreachable(f"{url} cannot be asked: {str(error) or 'no answer in time'}") from error
        if len(content) > LARGEST:
            raise IssuerUnreachable(f"{url} answered with more than {format_size(LARGEST)}")
        return read_document(content, str(url))


def _url(address: str, allow_hosts: frozenset[str]) -> yarl.URL:
    """Parse an address as the client that connects does. Raises IssuerUnreachable."""
    try:
        url = yarl.URL(address)
        host = url.host or ""
    except ValueError as error:
        raise IssuerUnreachable(f"{address[:200]!r} is not a URL: {error}") from error
    is_local = url.scheme == "http" and is_loopback(host) and is_allowed(host, allow_hosts)
    if not host or url.user is not None or not (url.scheme == "https" or is_local):
        raise IssuerUnreachable(f"{address[:200]!r} is not asked: an issuer and its keys have an https address")
    return url


def read_document(body: bytes, address: str) -> Mapping[str, Any]:
    """The JSON object of an answer. Raises IssuerUnreachable."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise IssuerUnreachable(f"{address} answered with what is no JSON object") from error
