"""Verifies webhook signatures: HMAC-SHA256 over id, time and body. Pure; compares in constant time.

Sources: Standard Webhooks (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md), and MLflow's
webhooks, which use the same signature with other header names and the secret's text as the key. A secret of one scheme
is not valid for the other. The library of Standard Webhooks is not used, because it reads the wall clock and requires a
JSON body.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from eventing.http import Headers

PREFIX: Final = "whsec_"
SHORTEST: Final = 24
"""Minimum bytes of a key (Standard Webhooks, "Signature scheme")."""
MOST: Final = 10
"""Maximum number of signatures that are checked; a sender that rotates its key sends two."""
_VERSION: Final = b"v1,"
_ID: Final = re.compile(rb"[\x21-\x2d\x2f-\x7e]{1,256}")
"""Visible ASCII except the point, which separates the signed parts: (`a`, `b.c`) and (`a.b`, `c`) must differ."""
_TIMESTAMP: Final = re.compile(rb"[0-9]{1,12}")


class BadKey(ValueError):
    """A secret that is not a valid key of a scheme."""


def standard_key(secret: str) -> bytes:
    """Return the key of `whsec_<base64>`. Raises BadKey."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadKey(f"a key must be {PREFIX} followed by base64") from error
    if not secret.startswith(PREFIX) or len(key) < SHORTEST:
        raise BadKey(f"a key must be {PREFIX} followed by base64 of at least {SHORTEST} bytes")
    return key


def plain_key(secret: str) -> bytes:
    """Return the bytes of the text as the key. Raises BadKey."""
    key = secret.encode()
    if secret.startswith(PREFIX) or len(key) < SHORTEST:
        raise BadKey(f"a key must be a text of at least {SHORTEST} bytes that does not begin with {PREFIX}")
    return key


@dataclass(frozen=True, slots=True)
class Scheme:
    """The header names of a signature scheme, and the function that derives a key from a secret's text."""

    id: bytes
    timestamp: bytes
    signature: bytes
    key: Callable[[str], bytes]


STANDARD: Final = Scheme(b"webhook-id", b"webhook-timestamp", b"webhook-signature", standard_key)
MLFLOW: Final = Scheme(b"x-mlflow-delivery-id", b"x-mlflow-timestamp", b"x-mlflow-signature", plain_key)
SCHEMES: Final = (STANDARD, MLFLOW)
"""Schemes for senders that do not support CloudEvents. CloudEvents are signed with the first."""


@dataclass(frozen=True, slots=True)
class WebhookSignature:
    """The signature of a request: well-formed, not verified yet."""

    scheme: Scheme
    id: bytes
    timestamp: bytes
    signatures: tuple[bytes, ...]

    def is_by(self, secrets: Iterable[str], body: bytes) -> bool:
        """Return whether one of the keys in `secrets` signed `body`; malformed keys are skipped."""
        content = b".".join((self.id, self.timestamp, body))
        found = False
        for secret in secrets:
            try:
                made = hmac.digest(self.scheme.key(secret), content, "sha256")
            except BadKey:
                continue
            for signature in self.signatures:
                found |= hmac.compare_digest(made, signature)
        return found


def parse_signature(
    headers: Headers, now: float, tolerance: float, schemes: Iterable[Scheme] = (STANDARD,)
) -> WebhookSignature | str:
    """Return the signature, or what is wrong with it; `now` in Unix seconds, `tolerance` in seconds."""
    for scheme in schemes:
        given = [
            [value for name, value in headers if name == wanted]
            for wanted in (scheme.id, scheme.timestamp, scheme.signature)
        ]
        if any(given):
            return _parse(scheme, given, now, tolerance)
    return "the request has no webhook-signature"


def _parse(scheme: Scheme, given: Sequence[Sequence[bytes]], now: float, tolerance: float) -> WebhookSignature | str:
    if [len(values) for values in given] != [1, 1, 1]:
        names = f"{scheme.id.decode()}, {scheme.timestamp.decode()} and {scheme.signature.decode()}"
        return f"the request must have each of {names} once"
    [delivery], [timestamp], [signature] = given
    if not _ID.fullmatch(delivery):
        return f"{scheme.id.decode()} is not 1 to 256 visible ASCII characters without a point"
    if not _TIMESTAMP.fullmatch(timestamp):
        return f"{scheme.timestamp.decode()} is not a time in Unix seconds"
    if not abs(now - int(timestamp)) <= tolerance:
        return f"{scheme.timestamp.decode()} differs by more than {tolerance:g} s from our time, {int(now)}"
    signatures = []
    for one in signature.split(b" ")[:MOST]:
        if one.startswith(_VERSION):
            with suppress(binascii.Error):
                signatures.append(base64.b64decode(one[len(_VERSION) :], validate=True))
    return WebhookSignature(scheme, delivery, timestamp, tuple(signatures))
