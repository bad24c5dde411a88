"""Signs webhook requests; `signatures` verifies them. Pure; needs only the standard library, for training scripts."""

from __future__ import annotations

import base64
import hmac
from datetime import datetime
from typing import Final

PREFIX: Final = "whsec_"
KEY_BYTES: Final = 32
"""Length of a new key: that of a SHA-256 digest (RFC 2104 §3). Standard Webhooks requires 24 to 64 bytes."""


def make_secret(random: bytes) -> str:
    """Return the text of a key, `whsec_…`, from `KEY_BYTES` random bytes."""
    return PREFIX + base64.b64encode(random).decode()


def sign(secret: str, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """Return the signature headers of a request with this body (Standard Webhooks §Signature scheme).

    `id` identifies the request and contains no point. Raises ValueError for a malformed key.
    """
    if not secret.startswith(PREFIX):
        raise ValueError(f"a key must begin with {PREFIX}")
    key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    timestamp = str(int(at.timestamp()))
    made = hmac.digest(key, b".".join((id.encode(), timestamp.encode(), body)), "sha256")
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(made).decode()}",
    }
