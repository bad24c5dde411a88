"""The record of measured figures: one JSON file by part. A new measurement of a part replaces the former one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtests.bench.figure import Figure
from loadtests.bench.machine import Machine, described, from_json

RECORD = Path(__file__).parents[2] / "docs" / "evidence" / "performance.json"
DIGITS = 4
"""Significant digits of recorded values. More would be noise and change the file in every run."""


@dataclass(frozen=True, slots=True)
class Part:
    """The figures of one measurement, with its day (ISO 8601) and machine."""

    day: str
    machine: Machine
    figures: Sequence[Figure]


def measured_now(figures: Sequence[Figure]) -> Part:
    """Return a part that was measured today on this machine."""
    return Part(datetime.now(UTC).date().isoformat(), described(), figures)


def read_record(path: Path = RECORD) -> dict[str, Part]:
    """Read the record by part; empty if nothing was measured. Raises ValueError if the file is invalid."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: _part(name, part) for name, part in found.items()}


def keep(parts: Mapping[str, Part], path: Path = RECORD) -> dict[str, Part]:
    """Replace the parts of these names in the record; return all parts."""
    every = read_record(path) | dict(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: _plain(part) for name, part in sorted(every.items())}
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return read_record(path)


def _plain(part: Part) -> dict[str, Any]:
    figures = [dataclasses.asdict(figure) | {"value": float(f"{figure.value:.{DIGITS}g}")} for figure in part.figures]
    return {"day": part.day, "machine": dataclasses.asdict(part.machine), "figures": figures}


def _part(name: str, found: Mapping[str, Any]) -> Part:
    try:
        figures = [Figure(**figure) for figure in found["figures"]]
        return Part(found["day"], from_json(found["machine"]), figures)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"part {name!r} of the record cannot be read ({error}); measure it anew: make bench"
        ) from error
