"""Signatures of webhooks: HMAC-SHA256 over id, time and body. Pure; compared in constant time.

Sources: Standard Webhooks (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md); MLflow's
webhooks, which sign likewise under header names of their own, with the text of the secret as the key: a text that
is meant for the one scheme is none for the other. The library of Standard Webhooks reads the wall clock, and wants the
body to be JSON.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from eventing.http import Headers

PREFIX: Final = "whsec_"
SHORTEST: Final = 24  # bytes of a key (Standard Webhooks, "Signature scheme")
MOST: Final = 10  # signatures that are looked at; a sender that rotates its key sends two
_VERSION: Final = b"v1,"
_ID: Final = re.compile(rb"[\x21-\x2d\x2f-\x7e]{1,256}")
"""Without the point that separates what is signed: else (`a`, `b.c`) and (`a.b`, `c`) had one signature."""
_TIMESTAMP: Final = re.compile(rb"[0-9]{1,12}")


class BadKey(ValueError):
    """A secret that is no key."""


def standard_key(secret: str) -> bytes:
    """The key of `whsec_<base64>`. Raises BadKey."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadKey(f"a key is {PREFIX} and base64") from error
    if not secret.startswith(PREFIX) or len(key) < SHORTEST:
        raise BadKey(f"a key is {PREFIX} and base64 of {SHORTEST} bytes or more")
    return key


def plain_key(secret: str) -> bytes:
    """The key that a text is by itself. Raises BadKey."""
    key = secret.encode()
    if secret.startswith(PREFIX) or len(key) < SHORTEST:
        raise BadKey(f"a key is a text of {SHORTEST} bytes or more, and does not begin with {PREFIX}")
    return key


@dataclass(frozen=True, slots=True)
class Scheme:
    """Header names, and how a key is made of a secret's text."""

    id: bytes
    timestamp: bytes
    signature: bytes
    key: Callable[[str], bytes]


STANDARD: Final = Scheme(b"webhook-id", b"webhook-timestamp", b"webhook-signature", standard_key)
MLFLOW: Final = Scheme(b"x-mlflow-delivery-id", b"x-mlflow-timestamp", b"x-mlflow-signature", plain_key)
SCHEMES: Final = (STANDARD, MLFLOW)
"""Of senders that do not speak CloudEvents; those that do have the first."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A request's signature as it came, of sound form."""

    scheme: Scheme
    id: bytes
    timestamp: bytes
    signatures: tuple[bytes, ...]

    def is_by(self, secrets: Iterable[str], body: bytes) -> bool:
        """Whether a key of `secrets` made it; a secret that is no key made none."""
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


def signed(headers: Headers, now: float, tolerance: float, schemes: Iterable[Scheme] = (STANDARD,)) -> Signed | str:
    """The signature, or what is wrong with its form or its time; `now` in Unix seconds."""
    for scheme in schemes:
        given = [
            [value for name, value in headers if name == wanted]
            for wanted in (scheme.id, scheme.timestamp, scheme.signature)
        ]
        if any(given):
            return _read(scheme, given, now, tolerance)
    return "it has no webhook-signature"


def _read(scheme: Scheme, given: Sequence[Sequence[bytes]], now: float, tolerance: float) -> Signed | str:
    if [len(values) for values in given] != [1, 1, 1]:
        return f"it needs {scheme.id.decode()}, {scheme.timestamp.decode()} and {scheme.signature.decode()}, each once"
    [delivery], [timestamp], [signature] = given
    if not _ID.fullmatch(delivery):
        return f"{scheme.id.decode()} has other characters than visible ones without a point, or more than 256"
    if not _TIMESTAMP.fullmatch(timestamp):
        return f"{scheme.timestamp.decode()} is no time in Unix seconds"
    if not abs(now - int(timestamp)) <= tolerance:
        return f"{scheme.timestamp.decode()} is more than {tolerance:g} s from our time, {int(now)}"
    signatures = tuple(_decoded(one) for one in signature.split(b" ")[:MOST] if one.startswith(_VERSION))
    return Signed(scheme, delivery, timestamp, signatures)


def _decoded(signature: bytes) -> bytes:
    try:
        return base64.b64decode(signature[len(_VERSION) :], validate=True)
    except binascii.Error:
        return b""  # equal to no digest
