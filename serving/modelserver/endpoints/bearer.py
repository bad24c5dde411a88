"""Who may tell a server which models to serve: whoever has the token whose SHA-256 it was started with."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

from serving.modelserver.base.errors import Unauthorized
from serving.modelserver.base.options import LOAD_TOKEN

_SCHEME: Final = "bearer"


class Bearer(msgspec.Struct, frozen=True):
    """`sha256` is hex, "" where nobody may."""

    sha256: str

    def check(self, authorization: str) -> None:
        """Raise Unauthorized, unless this is `Bearer TOKEN`."""
        scheme, _, token = authorization.partition(" ")
        found = hashlib.sha256(token.strip().encode("latin-1", "replace")).hexdigest().encode()
        if scheme.lower() != _SCHEME or not hmac.compare_digest(found, self.sha256.encode()):
            raise Unauthorized(f"this needs the bearer token whose SHA-256 the server has from {LOAD_TOKEN}")
