"""The CloudEvents extension `sequence`: the order of an event among the events of its source. Pure.

Source: cloudevents/spec `cloudevents/extensions/sequence.md` (1.0.2). Values are ordered as text; with `sequencetype`
"Integer" they are signed 32-bit integers, which wrap around. Needs only the standard library, for training scripts.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

INTEGER: Final = "Integer"
"""Value of `sequencetype`: the sequence is a signed 32-bit integer."""
_MODULUS: Final = 1 << 32
_LIMITS: Final = range(-(1 << 31), 1 << 31)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,32}")


class EventSequence(NamedTuple):
    """The attributes `sequence` and `sequencetype` of an event; empty texts when absent."""

    value: str = ""
    type: str = ""

    @classmethod
    def of(cls, value: str | int) -> EventSequence:
        """Return the sequence with the `sequencetype` that fits: Integer for a 32-bit integer, else none.

        Raises ValueError for an int of more than 32 bits.

        Example: `EventSequence.of(10)` is `EventSequence("10", "Integer")`.
        """
        if isinstance(value, int) and value not in _LIMITS:
            raise ValueError(f"sequence {value} is not a signed 32-bit integer: pass it as text of constant length")
        text = str(value)
        return cls(text, INTEGER if _integer(text) is not None else "")

    @property
    def fault(self) -> str:
        """Return why the attributes contradict each other, or an empty text."""
        if self.type != INTEGER or not self.value or _integer(self.value) is not None:
            return ""
        return f"sequence {self.value[:40]!r} is not a signed 32-bit integer, as sequencetype Integer requires"

    def compare(self, other: EventSequence) -> int | None:
        """Return a positive number if this one is later, a negative one if it is earlier, 0 if sequences do not decide.

        Return None if the order is ambiguous: decimal numbers of different lengths without `sequencetype`, which are
        10 < 9 as text and 9 < 10 as numbers. The specification requires their sender to pad them or to set the type.
        """
        if not self.value or not other.value or self.value == other.value:
            return 0
        if INTEGER in (self.type, other.type):
            one, two = _integer(self.value), _integer(other.value)
            if one is None or two is None:
                return 0  # the sender changed from texts to integers, or back
            ahead = (one - two) % _MODULUS  # serial-number arithmetic (RFC 1982): sequences may wrap around
            return 0 if ahead in (0, _MODULUS // 2) else 1 if ahead < _MODULUS // 2 else -1
        if _is_decimal(self.value) and _is_decimal(other.value) and len(self.value) != len(other.value):
            return None
        return 1 if self.value > other.value else -1


def _integer(text: str) -> int | None:
    value = int(text) if _is_decimal(text) else None
    return value if value is not None and value in _LIMITS else None


def _is_decimal(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None
