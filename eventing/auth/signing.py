"""The other side of `signatures`: headers by which an EventSource knows a sender. Pure, and of the standard library."""

from __future__ import annotations

import base64
import hmac
from datetime import datetime
from typing import Final

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 32
"""Of a new key: as long as what SHA-256 makes of it (RFC 2104 §3); Standard Webhooks asks for 24 to 64."""


def make_secret(random: bytes) -> str:
    """A key's text, of `KEY_BYTES` random bytes."""
    return PREFIX + base64.b64encode(random).decode()


def sign(secret: str, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of a request with this body (Standard Webhooks §Signature scheme); `id` is that of the request, and
    has no point. Raises ValueError for a secret that is no key."""
    if not secret.startswith(PREFIX):
        raise ValueError(f"a key begins with {PREFIX}")
    key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    timestamp = str(int(at.timestamp()))
    made = hmac.digest(key, b".".join((id.encode(), timestamp.encode(), body)), "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }
