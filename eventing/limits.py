"""How much senders may ask of the webhook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds: bytes, events, seconds."""

    body: int = MEBIBYTE
    """Bytes of one request; a consumer should take 64 KiB at least (CloudEvents `spec.md`, "Size Limits")."""
    bodies: int = 64 * MEBIBYTE
    """Bytes of all requests that are read, or are under way."""
    decoded: int = 128 * MEBIBYTE
    """Bytes that the values of all requests take that are decoded, which those of strangers are not."""
    requests: float = 20_000.0
    """A second, of everybody, known or not: several times what one core answers, so that a flood costs no decoding."""
    events: float = 50_000.0
    """A second, of one EventSource: twice what the ledger takes on one core: one sender does not fill its queue."""
    pending: int = 10_000
    """Events of one EventSource that wait for their effect: with 8 kB each in memory when embedded, 80 MB."""
    unknown: float = 0.1
    """s that a refusal takes at least at the path of an EventSource, as long as its Secret takes to be read: nobody
    learns by the time which names there are."""
    tolerance: float = 300.0
    """s between a signature's time and ours, either way (Standard Webhooks; AWS and Stripe have the same)."""
    leeway: float = 60.0
    """s that a token's issuer and we may differ (RFC 7519 §4.1.4: "no more than a few minutes")."""


DEFAULTS: Final = Limits()
