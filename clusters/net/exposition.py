"""The text format of Prometheus. Families are computed for each scrape; there is no registry.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RESIDENT_FIELD = 1  # of /proc/PID/statm (proc_pid_statm(5)), in pages
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]


class Family(msgspec.Struct, frozen=True):
    """All samples of one metric: pairs of labels and value."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text format."""
        yield from _head(self.name, self.type, self.help)
        for labels, value in self.samples:
            yield _sample(self.name, labels, value)


class Buckets(msgspec.Struct, frozen=True):
    """Observations with one set of labels. `counts` holds one count per bucket; the last bucket is unbounded."""

    labels: Labels
    counts: Sequence[int]
    sum: float


class Histogram(msgspec.Struct, frozen=True):
    """All observations of one metric in buckets with the ascending upper bounds `bounds`."""

    name: str
    help: str
    bounds: Sequence[float]
    samples: tuple[Buckets, ...]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text format, with cumulative counts."""
        yield from _head(self.name, "histogram", self.help)
        bounds = (*(f"{bound:g}" for bound in self.bounds), "+Inf")
        for buckets in self.samples:
            for bound, count in zip(bounds, accumulate(buckets.counts), strict=True):
                yield _sample(f"{self.name}_bucket", {**buckets.labels, "le": bound}, count)
            yield _sample(f"{self.name}_sum", buckets.labels, buckets.sum)
            yield _sample(f"{self.name}_count", buckets.labels, sum(buckets.counts))


def one(name: str, type: Literal["counter", "gauge"], help: str, value: float) -> Family:
    """Return a family with a single sample."""
    return Family(name, type, help, (({}, value),))


def render(families: Iterable[Family | Histogram]) -> str:
    """Return the text of the families."""
    return "\n".join(line for family in families for line in family.lines()) + "\n"


def process_families() -> list[Family]:
    """Return CPU, memory and open files of this process, with the metric names of Prometheus' clients."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[_RESIDENT_FIELD])
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only counted
    return [
        one("process_cpu_seconds_total", "counter", "CPU time used.", usage.ru_utime + usage.ru_stime),
        one("process_resident_memory_bytes", "gauge", "Resident memory.", float(pages * os.sysconf("SC_PAGE_SIZE"))),
        one("process_open_fds", "gauge", "Open file descriptors.", float(open_files)),
    ]


def _head(name: str, type: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {type}"


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value:.17g}" if shown else f"{name} {value:.17g}"
