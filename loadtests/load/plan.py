"""What a load generator is told, as a JSON file: whom it asks what, and when."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "KNODEL_LOAD_FOLDER"
"""Environment variable with the folder of a plan and of what comes of it."""
PLAN, BEGUN, ANSWERS = "plan.json", "begun", "answers.csv"
"""Files of it; the second comes when the first request is due, and says when that was."""
HEADER = "due,took,status,which,error"
"""Columns of the answers: seconds since the beginning, seconds from then to the whole answer, HTTP status, which of the
right answers it was (-1 for none), what went wrong."""
NOBODY, WRONG = 0, -1
"""In the place of a status: no answer, and a 200 that says something else than it should."""


@dataclass(frozen=True, slots=True)
class Plan:
    """POST `body` to `url` at each of `arrivals` (seconds), whatever becomes of those before: an open loop.

    A right answer is a 200 that has one of `accepted` in it. An answer that takes longer than `patience` seconds, or
    needs more than `connections` at once, is none.
    """

    url: str
    headers: Mapping[str, str]
    body: str
    accepted: Sequence[str]
    arrivals: Sequence[float]
    patience: float = 30.0
    connections: int = 2000

    def write(self, folder: Path) -> None:
        """Into the folder."""
        (folder / PLAN).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Out of the folder."""
        return cls(**json.loads((folder / PLAN).read_text()))
