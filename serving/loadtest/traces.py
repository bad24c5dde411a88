"""Recorded requests in CSV files.

The first line has the names of the columns. `TIMESTAMP` is the time of a request in ISO 8601, with any number of
fractional digits; without a zone it is in UTC. The rows may be in any order. This is the form of the public traces of
Azure's LLM services.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from clusters.base.errors import KnodelError

TIMESTAMP: Final = "TIMESTAMP"
T = TypeVar("T")
Row = Mapping[str, str | None]


class InvalidTrace(KnodelError):
    """Raised for a file that is not a trace. The message contains the file, the line and the error."""


def read_arrivals(path: Path) -> list[float]:
    """Return the times of the requests in ascending order, in seconds since the first. Raises InvalidTrace."""
    times = sorted(read_rows(path, (TIMESTAMP,), moment_of))
    return [time - times[0] for time in times]


def read_rows(path: Path, columns: Sequence[str], parse: Callable[[Row], T]) -> list[T]:
    """Return `parse(row)` of every row, at least one. Other columns than `columns` may be absent.

    Raises InvalidTrace if the file cannot be read, has no request, or `parse` raises ValueError.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(_rows(path, csv.DictReader(lines), columns, parse))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidTrace(f"{path}: cannot be read as a trace ({error}); a CSV file is required") from error
    if not rows:
        raise InvalidTrace(f"{path}: has no request; add lines such as 2023-11-16 18:15:46.68,374,44")
    return rows


def moment_of(row: Row) -> float:
    """Return the time of a request in seconds since 1970. Raises ValueError."""
    text = row[TIMESTAMP]
    try:
        moment = datetime.fromisoformat((text or "").strip())
    except ValueError:
        raise ValueError(f"{TIMESTAMP} must be a time like 2023-11-16 18:15:46.68, not {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _rows(path: Path, reader: csv.DictReader[str], columns: Sequence[str], parse: Callable[[Row], T]) -> Iterator[T]:
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidTrace(
            f"{path}:1: has no column {' and no column '.join(missing)}; column names belong in the first line"
        )
    for row in reader:
        try:
            yield parse(row)
        except ValueError as error:
            raise InvalidTrace(f"{path}:{reader.line_num}: {error}") from error
