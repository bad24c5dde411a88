"""The text formats of Prometheus and OpenMetrics. Families are computed for each scrape; there is no registry.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4), and
https://prometheus.io/docs/specs/om/open_metrics_spec/ (version 1.0.0) for scrapers that prefer it, since only that one
has exemplars.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_CONTENT_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
_END = "# EOF\n"  # by which a reader of OpenMetrics recognises a whole page
_RESIDENT_FIELD = 1  # of /proc/PID/statm (proc_pid_statm(5)), in pages
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]


class Family(msgspec.Struct, frozen=True):
    """All samples of one metric: pairs of labels and value."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]

    def lines(self, openmetrics: bool = False) -> Iterator[str]:
        """Yield the lines of a text format. OpenMetrics names a counter without the suffix of its samples."""
        name = self.name.removesuffix("_total") if openmetrics and self.type == "counter" else self.name
        yield from _head(name, self.type, self.help)
        for labels, value in self.samples:
            yield _sample(self.name, labels, value)


class Exemplar(msgspec.Struct, frozen=True):
    """One observation of a bucket, with the ids of its request's trace and span; `at` in seconds since 1970."""

    trace_id: str
    span_id: str
    value: float
    at: float


class Buckets(msgspec.Struct, frozen=True):
    """Observations with one set of labels. `counts` holds one count per bucket; the last bucket is unbounded.

    `exemplars` is empty, or has an entry for each bucket.
    """

    labels: Labels
    counts: Sequence[int]
    sum: float
    exemplars: Sequence[Exemplar | None] = ()


class Histogram(msgspec.Struct, frozen=True):
    """All observations of one metric in buckets with the ascending upper bounds `bounds`."""

    name: str
    help: str
    bounds: Sequence[float]
    samples: tuple[Buckets, ...]

    def lines(self, openmetrics: bool = False) -> Iterator[str]:
        """Yield the lines of a text format, with cumulative counts; those of OpenMetrics with exemplars."""
        yield from _head(self.name, "histogram", self.help)
        bounds = (*(repr(float(bound)) for bound in self.bounds), "+Inf")
        for buckets in self.samples:
            exemplars = buckets.exemplars if openmetrics and buckets.exemplars else [None] * len(bounds)
            for bound, count, exemplar in zip(bounds, accumulate(buckets.counts), exemplars, strict=True):
                line = _sample(f"{self.name}_bucket", {**buckets.labels, "le": bound}, count)
                yield line if exemplar is None else f"{line} {_exemplar(exemplar)}"
            yield _sample(f"{self.name}_sum", buckets.labels, buckets.sum)
            yield _sample(f"{self.name}_count", buckets.labels, sum(buckets.counts))


Families = Iterable[Family | Histogram]


class Page(NamedTuple):
    """A page of metrics in the format of its content type."""

    text: str
    content_type: str


def one(name: str, type: Literal["counter", "gauge"], help: str, value: float) -> Family:
    """Return a family with a single sample."""
    return Family(name, type, help, (({}, value),))


def page_of(families: Families, accept: str = "") -> Page:
    """Return the page of the families, in OpenMetrics for a reader whose `Accept` header prefers that."""
    if wants_openmetrics(accept):
        return Page(render(families, openmetrics=True) + _END, OPENMETRICS_CONTENT_TYPE)
    return Page(render(families), CONTENT_TYPE)


def wants_openmetrics(accept: str) -> bool:
    """Return whether an `Accept` header names OpenMetrics, and no other text with a higher weight. Pure."""
    weights = {OPENMETRICS: 0.0, "text/plain": 0.0}
    for entry in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        if media_type in weights:
            given = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            try:
                weights[media_type] = max(weights[media_type], float(given))
            except ValueError:
                continue
    return 0 < weights[OPENMETRICS] >= weights["text/plain"]


def render(families: Families, openmetrics: bool = False) -> str:
    """Return the text of the families."""
    return "\n".join(line for family in families for line in family.lines(openmetrics)) + "\n"


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


def _exemplar(exemplar: Exemplar) -> str:
    ids = f'trace_id="{exemplar.trace_id}",span_id="{exemplar.span_id}"'
    return f"# {{{ids}}} {exemplar.value:.17g} {exemplar.at:.3f}"


def _sample(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value:.17g}" if shown else f"{name} {value:.17g}"
