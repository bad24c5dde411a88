"""Verifies OpenID Connect bearer tokens: issuer, audience, expiry, subject, signature. PyJWT checks signatures.

Sources: OpenID Connect Core §2 and Discovery §4, RFC 7519, RFC 8725 (the verifier chooses the algorithms, not the
token). Times are checked here, against the injected clock.
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
"""Only asymmetric algorithms: with HS256 an issuer's public key would be a shared secret."""
LONGEST: Final = 16 * 1024
"""Maximum characters of a token."""
CACHED: Final = 1024
"""Maximum number of verified tokens in the cache."""
CACHED_FOR: Final = 60.0
"""Seconds that a verified token is accepted without checking its signature again (40 µs with RSA). A withdrawn key is
accepted for that long beyond the lifetime of the issuer's key set."""
_CLAIMS: Final = ["exp", "iss", "aud", "sub"]


class IssuerUnreachable(TryLater):
    """The keys of an issuer are not available at present."""

    def __init__(self, message: str) -> None:
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, message, retry_after=5.0)


class IssuerKeys(Protocol):
    """The public keys of issuers."""

    async def key(self, issuer: str, kid: str) -> jwt.PyJWK | None:
        """Return the issuer's key of that id, or its only key if `kid` is empty; else None.

        Raises IssuerUnreachable.
        """
        ...


class Tokens:
    """Verifies bearer tokens, with a cache of verified ones."""

    def __init__(self, keys: IssuerKeys, clock: Clock, leeway: float) -> None:
        """`leeway`: clock skew in seconds allowed between an issuer and us."""
        self._keys = keys
        self._clock = clock
        self._leeway = leeway
        self._verified: OrderedDict[bytes, tuple[float, float]] = OrderedDict()  # drop at (monotonic), expires (Unix)

    async def refusal(self, token: str, auth: OidcAuth) -> str:
        """Return why `token` is not a valid token of `auth`, empty if it is. Raises IssuerUnreachable."""
        if len(token) > LONGEST:
            return f"the token has more than {LONGEST} characters"
        text = "\0".join((token, auth.issuer, auth.audience, auth.subject))
        fingerprint = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        now, monotonic = self._clock.now().timestamp(), self._clock.monotonic()
        if fingerprint in self._verified:
            drop_at, expires = self._verified[fingerprint]
            if monotonic < drop_at and now < expires:
                return ""
            del self._verified[fingerprint]
        try:
            if not _claims_match(token, auth):
                return "the token has another issuer, audience or subject"
            claims = await self._verified_claims(token, auth)
        except jwt.PyJWTError as error:
            return f"the token is not valid: {error}"
        if fault := self._fault(claims, auth, now):
            return fault
        self._verified[fingerprint] = (monotonic + CACHED_FOR, claims["exp"] + self._leeway)
        if len(self._verified) > CACHED:
            self._verified.popitem(last=False)
        return ""

    async def _verified_claims(self, token: str, auth: OidcAuth) -> dict[str, Any]:
        """Check the signature and return the claims. Raises jwt.PyJWTError, IssuerUnreachable."""
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise jwt.InvalidAlgorithmError("its algorithm is not supported")
        kid = header.get("kid", "")
        key = await self._keys.key(auth.issuer, kid if isinstance(kid, str) else "")
        if key is None:
            raise jwt.InvalidKeyError("its issuer does not have its key")
        return jwt.decode(
            token,
            key,
            algorithms=list(ALGORITHMS),
            audience=auth.audience,
            issuer=auth.issuer,
            options={"require": _CLAIMS, "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )

    def _fault(self, claims: dict[str, Any], auth: OidcAuth, now: float) -> str:
        """Return what is wrong with the times or the subject of verified claims, or an empty text."""
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (expires, begins)):
            return "exp and nbf of the token are not numbers"
        if not now < expires + self._leeway:  # also true for NaN
            return "the token has expired"
        if not begins - self._leeway <= now:
            return "the token is not valid yet"
        if claims["sub"] != auth.subject:
            return "the token has another subject"
        return ""


def _claims_match(token: str, auth: OidcAuth) -> bool:
    """Return whether the unverified claims match `auth`, before its issuer is contacted. Raises jwt.PyJWTError."""
    claims = jwt.decode(token, options={"verify_signature": False})
    audiences = claims.get("aud")
    return (
        claims.get("iss") == auth.issuer
        and claims.get("sub") == auth.subject
        and auth.audience in (audiences if isinstance(audiences, list) else [audiences])
    )
