"""An OIDC issuer for tests: a key pair, its tokens and its key set."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from clusters.base.clock import Clock
from eventing.objects.ports import OidcAuth

ISSUER = "https://issuer.example"
AUTH = OidcAuth(ISSUER, audience="knodel", subject="ci")


class Issuer:
    """`oidc.IssuerKeys` of one issuer with one key."""

    def __init__(self, clock: Clock, kid: str = "k1") -> None:
        self._clock = clock
        self._kid = kid
        self._private = ec.generate_private_key(ec.SECP256R1())
        self.asked = 0

    def token(self, algorithm: str = "ES256", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token for `AUTH`, valid for an hour; `claims` replace its claims, None removes one."""
        expires = int((self._clock.now() + timedelta(hours=1)).timestamp())
        given = {"iss": ISSUER, "aud": AUTH.audience, "sub": AUTH.subject, "exp": expires} | claims
        payload = {name: value for name, value in given.items() if value is not None}
        key: Any = {"ES256": self._private, "none": None}.get(algorithm, "a shared secret of 32 bytes or more")
        return jwt.encode(payload, key, algorithm, headers={"kid": self._kid} | (headers or {}))

    def key_set(self) -> dict[str, Any]:
        """As an issuer publishes it."""
        public = json.loads(ECAlgorithm.to_jwk(self._private.public_key()))
        return {"keys": [{**public, "kid": self._kid, "use": "sig", "alg": "ES256"}]}

    async def key(self, issuer: str, kid: str) -> jwt.PyJWK | None:
        """As `IssuerKeys` says."""
        self.asked += 1
        keys = jwt.PyJWKSet.from_dict(self.key_set()).keys
        return next((key for key in keys if issuer == ISSUER and kid in ("", key.key_id)), None)
