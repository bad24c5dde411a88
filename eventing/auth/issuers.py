"""Key sets of OIDC issuers: found by discovery, cached, and fetched again for an unknown key id.

Only issuers of EventSources are contacted, whatever a token claims. Tenants write EventSources, so `clusters.net.ssrf`
checks the hosts of an issuer and of its key set. Source: OpenID Connect Discovery 1.0 §4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import jwt
import msgspec
import yarl
from cryptography.exceptions import UnsupportedAlgorithm

from clusters.base.clock import Clock
from clusters.base.sizes import format_size
from clusters.net.client import FAILURES, HttpClient, Resolve, checked_connector, read_at_most
from clusters.net.ssrf import AddressRefused, is_allowed, is_loopback
from eventing.auth.oidc import IssuerUnreachable

log = logging.getLogger(__name__)

KEPT: Final = 600.0
"""Seconds after which a key set is fetched again. A withdrawn key is accepted for that long."""
FRESH: Final = 30.0
"""Seconds between two requests to an issuer at least, for unknown key ids and after failures."""
SETTLED: Final = 1.0
"""Seconds after a fetch in which an unknown key id is refused. Afterwards the issuer may have added the key, so until
the next fetch the sender is asked to retry."""
STALE: Final = 3600.0
"""Seconds that known keys are used while their issuer is unreachable."""
LARGEST: Final = 1 << 20
"""Maximum bytes of a response; key sets have a few KiB."""
TIMEOUT: Final = 5.0
"""Seconds for a response: a sender waits for it."""
MOST_KEYS: Final = 100
"""Maximum number of keys read from a set; real sets have a few."""
LARGEST_KEY: Final = 16_384
"""Maximum bits of a key: OpenSSL does not verify with a larger one."""
DISCOVERY: Final = "/.well-known/openid-configuration"
_PUBLIC_MEMBERS: Final = frozenset({"kty", "kid", "use", "key_ops", "alg", "crv", "x", "y", "n", "e"})
"""Members of public keys (RFC 7517 §4, RFC 7518 §6, RFC 8037 §2). Private ones are dropped: the check of a private RSA
key takes from a second to an hour, and the issuer decides which."""
_UNREADABLE: Final = (
    jwt.PyJWTError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError, UnsupportedAlgorithm
)  # fmt: skip
"""Errors that PyJWT and cryptography raise for a key that they cannot read."""


class Fetcher(Protocol):
    """Fetches key sets from issuers."""

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """Return the issuer's key set (RFC 7517 §5). Raises IssuerUnreachable."""
        ...


@dataclass(slots=True)
class _KeySet:
    """`attempted` and `read` are the monotonic times of the last attempt and the last success."""

    attempted: float
    read: float
    keys: tuple[jwt.PyJWK, ...]
    failed: bool = False


class CachedIssuerKeys:
    """`oidc.IssuerKeys` over a fetcher; sends one request at a time to each issuer."""

    def __init__(self, fetcher: Fetcher, clock: Clock) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._sets: dict[str, _KeySet] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def key(self, issuer: str, kid: str) -> jwt.PyJWK | None:
        """Return the key as `IssuerKeys` specifies."""
        known = self._sets.get(issuer)
        found = _find(known, kid)
        if known is not None and self._clock.monotonic() - known.attempted < (
            KEPT if found and not known.failed else FRESH
        ):
            return self._checked(known, kid, found)
        async with self._locks.setdefault(issuer, asyncio.Lock()):
            if self._sets.get(issuer) is known:  # else another task has fetched it meanwhile
                self._sets[issuer] = await self._fetch(issuer, known)
        return self._checked(self._sets[issuer], kid, _find(self._sets[issuer], kid))

    async def _fetch(self, issuer: str, known: _KeySet | None) -> _KeySet:
        try:
            keys = _parse_keys(await self._fetcher.fetch(issuer))
        except IssuerUnreachable as error:
            log.warning("issuer %s: %s", issuer, error)
            now = self._clock.monotonic()
            return _KeySet(now, known.read if known else float("-inf"), known.keys if known else (), failed=True)
        now = self._clock.monotonic()
        return _KeySet(now, now, keys)

    def _checked(self, known: _KeySet, kid: str, found: jwt.PyJWK | None) -> jwt.PyJWK | None:
        """Return `found`. Raises IssuerUnreachable if the set is too old to decide.

        The cause is only logged, because it would let senders probe our network.
        """
        now = self._clock.monotonic()
        if known.failed and (found is None or now - known.read > STALE):
            raise IssuerUnreachable("the keys of the token's issuer are not available, retry later")
        if found is None and kid and now - known.attempted > SETTLED:
            raise IssuerUnreachable("the token's key is unknown until its issuer's keys are fetched again, retry later")
        return found


def _find(known: _KeySet | None, kid: str) -> jwt.PyJWK | None:
    keys = known.keys if known is not None else ()
    if not kid:
        return keys[0] if len(keys) == 1 else None
    return next((key for key in keys if key.key_id == kid), None)


def _parse_keys(document: Mapping[str, Any]) -> tuple[jwt.PyJWK, ...]:
    """Return the keys for signatures; unknown kinds of keys are skipped (RFC 7517 §5)."""
    members = document.get("keys")
    members = members[:MOST_KEYS] if isinstance(members, list) else ()
    found = tuple(key for member in members if (key := _key(member)))
    if not found:
        raise IssuerUnreachable("its key set has no supported key")
    return found


def _key(member: Any) -> jwt.PyJWK | None:
    """Return the public key of a member of a key set; None if it is unsupported or not for signatures."""
    try:
        key = jwt.PyJWK({name: value for name, value in member.items() if name in _PUBLIC_MEMBERS})
        is_small = getattr(key.key, "key_size", 0) <= LARGEST_KEY
    except _UNREADABLE:
        return None
    return key if is_small and key.key_type != "oct" and key.public_key_use in (None, "sig") else None


class Discovery:
    """Find key sets as OpenID Connect Discovery specifies, over https and without redirects.

    Both the issuer and its key set are at public addresses, or at hosts in `allow_hosts`. The key set of a public
    issuer is at a public address. Plain http is accepted for loopback hosts in `allow_hosts`.
    """

    def __init__(self, allow_hosts: Callable[[], frozenset[str]] = frozenset, resolve: Resolve | None = None) -> None:
        """`allow_hosts` returns the hosts that the current settings allow; `resolve` replaces the system's resolver."""
        self._allow_hosts = allow_hosts
        self._resolve = resolve

    async def fetch(self, issuer: str) -> Mapping[str, Any]:
        """Return the key set of `issuer`. Raises IssuerUnreachable."""
        allowed = self._allow_hosts()
        where = _url(issuer.rstrip("/") + DISCOVERY, allowed)
        document = await self._get(where, allowed)
        if document.get("issuer") != issuer:
            own = str(document.get("issuer"))[:100]
            raise IssuerUnreachable(f"{issuer} is not the issuer's own name: set `issuer` to {own!r}")
        address = document.get("jwks_uri")
        if not isinstance(address, str):
            raise IssuerUnreachable(f"the discovery document of {issuer} has no jwks_uri")
        if not is_allowed(where.host or "", allowed):
            allowed = frozenset()  # a public issuer leads to no host that was allowed for direct use
        return await self._get(_url(address, allowed), allowed)

    async def _get(self, url: yarl.URL, allow_hosts: frozenset[str]) -> Mapping[str, Any]:
        client = HttpClient(TIMEOUT, lambda: checked_connector(allow_hosts, self._resolve), decompress=True)
        try:
            async with client, client.get(url) as response:
                if response.status != 200:
                    raise IssuerUnreachable(f"{url} answered {response.status}")
                content = await read_at_most(response, LARGEST)
        except (*FAILURES, AddressRefused) as error:
            raise IssuerUnreachable(f"{url} is not reachable: {str(error) or 'no response in time'}") from error
        if len(content) > LARGEST:
            raise IssuerUnreachable(f"the response of {url} is larger than {format_size(LARGEST)}")
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
        raise IssuerUnreachable(f"{address[:200]!r} is not an https URL: issuers and their keys need one")
    return url


def read_document(body: bytes, address: str) -> Mapping[str, Any]:
    """Return the JSON object in a response. Raises IssuerUnreachable."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise IssuerUnreachable(f"the response of {address} is not a JSON object") from error
