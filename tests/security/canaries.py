"""Planted secrets, and the search for them in whatever form a program could have left them behind."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

RANDOM_BYTES = 12  # 24 hex digits: no chance to be found where it was not planted


def make_canary() -> str:
    """A text that stands nowhere else: letters and digits, so that no escaping changes it."""
    return f"Canary{secrets.token_hex(RANDOM_BYTES)}"


def forms_of(secret: str) -> Iterator[bytes]:
    """The secret as it may be written: plain, in hex, in Base64 (wherever it begins within a longer text), reversed."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    yield raw[::-1]
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        # What neighbours share with it is left out: bits of the first and of the last group of four.
        core = encoded[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


@dataclass
class Canaries:
    """Secrets by what they are, with the places where each may be found (patterns of a place's name; default: none)."""

    planted: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)

    def plant(self, what: str, secret: str = "", home: str = "") -> str:
        """Look for `secret` from now on, a new one unless given; `home` matches the places where it belongs."""
        self.planted[what] = secret or make_canary()
        self.homes[what] = home
        return self.planted[what]

    def seen_in(self, content: bytes) -> list[str]:
        """Which secrets stand in it, in any form."""
        return [what for what, secret in self.planted.items() if any(form in content for form in forms_of(secret))]

    def strays_in(self, place: str, content: bytes) -> list[str]:
        """`WHAT in PLACE` for each secret that stands in it and does not belong there."""
        return [f"{what} in {place}" for what in self.seen_in(content) if not self._lives(what, place)]

    def _lives(self, what: str, place: str) -> bool:
        return bool(self.homes[what]) and re.search(self.homes[what], place) is not None
