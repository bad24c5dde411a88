"""Request traces from CSV files: arrival times, and the tokens of each request.

The columns are those of the public traces of Azure's LLM services (`loadtests/traces/README.md`): `TIMESTAMP` (ISO
8601, any number of fractional digits; the rows may be in any order), `ContextTokens`, `GeneratedTokens`. Other columns
are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoscaler.scaling.table import FloatArray
from serving.loadtest.traces import TIMESTAMP, Row, moment_of, read_rows

CONTEXT, GENERATED = "ContextTokens", "GeneratedTokens"
TRACES = Path(__file__).parent.parent / "traces"
SHIPPED = {"code": "azure_llm_2023_code.csv", "conv": "azure_llm_2023_conv.csv"}
"""Files of the included traces, by name."""
MOST_TOKENS = 10_000_000
"""Maximum tokens of one request: a hundred times the limits of current models. More is an error in the file."""
BURST_GAP = 1.0
"""Seconds without a request that end a burst."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival: seconds since the first one, and input and output tokens."""

    name: str
    arrivals: FloatArray
    context: FloatArray
    generated: FloatArray

    def faster(self, times: float) -> Trace:
        """Return the same requests at `times` times the rate."""
        return replace(self, arrivals=self.arrivals / times)

    def shuffled(self, seed: int) -> Trace:
        """Return the same bursts and the same pauses between them, both in random order.

        A burst is a sequence of requests without a pause of `BURST_GAP` seconds; it is not changed.
        """
        generator = np.random.default_rng(seed)
        gaps = np.diff(self.arrivals)
        first = np.concatenate([[0], np.flatnonzero(gaps > BURST_GAP) + 1, [len(self.arrivals)]])
        order = generator.permutation(len(first) - 1)
        pauses = generator.permutation(gaps[gaps > BURST_GAP])
        rows = np.concatenate([np.arange(first[burst], first[burst + 1]) for burst in order])
        arrivals, end = [], 0.0
        for place, burst in enumerate(order):
            times = self.arrivals[first[burst] : first[burst + 1]]
            began = end + pauses[place - 1] if place else 0.0
            arrivals.append(began + times - times[0])
            end = float(arrivals[-1][-1])
        return replace(
            self, arrivals=np.concatenate(arrivals), context=self.context[rows], generated=self.generated[rows]
        )


def open_trace(name: str) -> Trace:
    """Return the included trace with this name, else the trace in this file. Raises InvalidTrace."""
    return read_trace(TRACES / SHIPPED[name] if name in SHIPPED else Path(name))


def read_trace(path: Path) -> Trace:
    """Read a CSV file. Raises InvalidTrace if it cannot be read or a line is not a request."""
    name = next((short for short, file in SHIPPED.items() if file == path.name), path.stem)
    rows = read_rows(
        path,
        (TIMESTAMP, CONTEXT, GENERATED),
        lambda row: (moment_of(row), _tokens(row, CONTEXT), _tokens(row, GENERATED)),
    )
    arrivals, context, generated = (np.array(column, dtype=np.float64) for column in zip(*sorted(rows), strict=True))
    return Trace(name, arrivals - arrivals[0], context, generated)


def _tokens(row: Row, column: str) -> int:
    text = row[column]
    try:
        tokens = int(text or "")
    except ValueError:
        tokens = -1
    if not 0 <= tokens <= MOST_TOKENS:
        raise ValueError(f"{column} must be a whole number from 0 to {MOST_TOKENS}, not {text!r}")
    return tokens
