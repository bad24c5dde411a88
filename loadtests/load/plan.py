"""The plan of a load generator, kept as a JSON file: the requests, and when they are due."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "KNODEL_LOAD_FOLDER"
"""Environment variable with the folder of the plan and the responses."""
PLAN, BEGUN, RESPONSES = "plan.json", "begun", "responses.csv"
"""Files in the folder. `BEGUN` is written when the first request is due, and contains that time."""
HEADER = "due,took,status,which,error"
"""Columns of the responses: due time in seconds since the beginning, seconds from then to the whole response, HTTP
status, index of the accepted text in the response (-1 for none), and error.
"""
NO_RESPONSE, WRONG_BODY = 0, -1
"""Values in place of a status: no response, and a 200 without an accepted text."""


@dataclass(frozen=True, slots=True)
class Plan:
    """POST `body` to `url` at each of `arrivals` (seconds), without waiting for earlier responses: an open loop.

    A response is successful if its status is 200 and its body contains one of `accepted`. A request fails if its
    response takes longer than `patience` seconds, or if more than `connections` are needed at once.
    """

    url: str
    headers: Mapping[str, str]
    body: str
    accepted: Sequence[str]
    arrivals: Sequence[float]
    patience: float = 30.0
    connections: int = 2000

    def write(self, folder: Path) -> None:
        """Write the plan into the folder."""
        (folder / PLAN).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Read the plan from the folder."""
        return cls(**json.loads((folder / PLAN).read_text()))
