"""Figures that were measured, kept in one JSON file by part: a part that is measured anew replaces what stood there."""

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
"""Significant ones that are kept: more is noise, and makes every run another file."""


@dataclass(frozen=True, slots=True)
class Part:
    """What was measured together: on which day (ISO), on which machine."""

    day: str
    machine: Machine
    figures: Sequence[Figure]


def measured_now(figures: Sequence[Figure]) -> Part:
    """On this machine, today."""
    return Part(datetime.now(UTC).date().isoformat(), described(), figures)


def read_record(path: Path = RECORD) -> dict[str, Part]:
    """By part; empty where nothing has been measured. Raises ValueError when the file is something else."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return {name: _part(name, part) for name, part in found.items()}


def keep(parts: Mapping[str, Part], path: Path = RECORD) -> dict[str, Part]:
    """Put these in the place of those of the same name; returns all."""
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
