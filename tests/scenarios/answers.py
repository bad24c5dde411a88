"""What a scenario gets through the gateway: one answer, or those of a closed loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer through the gateway."""

    status: int
    revision: str
    body: Any
    headers: Mapping[str, str]


@dataclass(slots=True)
class Load:
    """What a closed loop has seen; `failures` holds every answer that was not 200, and every broken connection."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Answers that were 200."""
        return sum(self.answers.values())
