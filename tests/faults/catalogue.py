"""The rows of `catalogue.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PARTS = {
    "K": "Controller",
    "A": "Autoscaler",
    "W": "Warm pool",
    "E": "Event webhook",
    "M": "Model server",
    "I": "Gateway and activator",
    "C": "Command",
}


@dataclass(frozen=True)
class Row:
    """One fault. `limits` are those of its proof here."""

    id: str
    fault: str
    passes: str
    limits: str = ""


_ROWS = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text())
CATALOGUE = tuple(Row(row, **fields) for row, fields in _ROWS.items())
IDS = frozenset(_ROWS)


def rows_of(letter: str) -> Iterator[Row]:
    """The rows of one part, by its letter."""
    return (row for row in CATALOGUE if row.id.startswith(letter))
