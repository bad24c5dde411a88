"""Bearer tokens of OpenID Connect: who signed, for whom, until when, in whose name. PyJWT checks signatures.

Sources: OpenID Connect Core §2 and Discovery §4, RFC 7519, RFC 8725 (algorithms are ours to choose, not the token's).
Times are checked here, against the clock that the process was given.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from http import HTTPStatus
from typing import Any, Final, Protocol

import jwt

from clusters.base.clock import Clock
from eventing.errors import TryLater
from eventing.objects.ports import OidcAuth

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric ones only: with HS256 an issuer's public key would be a shared secret."""
LONGEST: Final = 16 * 1024  # characters of a token
REMEMBERED: Final = 1024  # tokens that were verified
REMEMBERED_FOR: Final = 60.0
"""s that a verified token is known without another look at its signature (40 µs with RSA); so long a withdrawn key
lasts beyond what the issuer's key set is kept for."""
_CLAIMS: Final = ["exp", "iss", "aud", "sub"]


class IssuerUnreachable(TryLater):
    """The keys of an issuer cannot be had now."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after=5.0)


class IssuerKeys(Protocol):
    """The public keys of issuers."""

    async def key(self, issuer: str, kid: str) -> jwt.PyJWK | None:
        """The key of that id (empty: of the only key); None when there is none. Raises IssuerUnreachable."""
        ...


class Tokens:
    """Verifies bearer tokens."""

    def __init__(self, keys: IssuerKeys, clock: Clock, leeway: float) -> None:
        """`leeway`: seconds that an issuer's clock may differ from ours."""
        self._keys = keys
        self._clock = clock
        self._leeway = leeway
        self._verified: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # forget at (monotonic), expires (Unix)

    async def refusal(self, token: str, auth: OidcAuth) -> str:
        """Empty when `token` proves that its bearer is `auth.subject`; else why not. Raises IssuerUnreachable."""
        if len(token) > LONGEST:
            return f"the token has more than {LONGEST} characters"
        known = _fingerprint(token, auth)
        now, passed = self._clock.now().timestamp(), self._clock.monotonic()
        if known in self._verified:
            forget_at, expires = self._verified[known]
            if passed < forget_at and now < expires:
                return ""
            del self._verified[known]
        try:
            if not _claims_to_be(token, auth):
                return "the token is another issuer's, audience's or subject's"
            claims = await self._claims(token, auth)
        except jwt.PyJWTError as error:
            return f"the token is not for us: {error}"
        if fault := self._fault(claims, auth, now):
            return fault
        self._verified[known] = (passed + REMEMBERED_FOR, claims["exp"] + self._leeway)
        if len(self._verified) > REMEMBERED:
            self._verified.popitem(last=False)
        return ""

    async def _claims(self, token: str, auth: OidcAuth) -> dict[str, Any]:
        """Raises jwt.PyJWTError, IssuerUnreachable."""
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError("it is signed by no algorithm that is taken here")
        kid = header.get("kid", "")
        key = await self._keys.key(auth.issuer, kid if isinstance(kid, str) else "")
        if key is None:
            raise jwt.InvalidKeyError("its issuer has no such key")
        return jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=auth.audience,
            issuer=auth.issuer,
            options={"require": _CLAIMS, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )

    def _fault(self, claims: dict[str, Any], auth: OidcAuth, now: float) -> str:
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (expires, begins)):
            return "the token's exp and nbf are no numbers"
        if not now < expires + self._leeway:  # which NaN is not
            return "the token has expired"
        if not begins - self._leeway <= now:
            return "the token is not valid yet"
        if claims["sub"] != auth.subject:
            return "the token is another subject's"
        return ""


def _claims_to_be(token: str, auth: OidcAuth) -> bool:
    """What it says of itself, unverified: no issuer is asked for another one's token. Raises jwt.PyJWTError."""
    claims = jwt.decode(token, options={"verify_signature": False})
    audiences = claims.get("aud")
    return (
        claims.get("iss") == auth.issuer
        and claims.get("sub") == auth.subject
        and auth.audience in (audiences if isinstance(audiences, list) else [audiences])
    )


def _fingerprint(token: str, auth: OidcAuth) -> bytes:
    text = "\0".join((token, auth.issuer, auth.audience, auth.subject))
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
