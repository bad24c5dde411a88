"""Metrics in Prometheus' text format: families that are read when somebody asks, none kept in between.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusters.controller import Controller
from clusters.informer import Informer

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RESIDENT_FIELD = 1  # of /proc/PID/statm (proc_pid_statm(5)), in pages
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name: (labels, value)."""

    name: str
    type: Literal["counter", "gauge"]
    help: str
    samples: tuple[tuple[Labels, float], ...]


def one(name: str, type: Literal["counter", "gauge"], help: str, value: float) -> Family:
    """A family with a single sample."""
    return Family(name, type, help, (({}, value),))


def render(families: Iterable[Family]) -> str:
    """The page."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}"]
        lines += [f"{family.name}{_labels(labels)} {value:.17g}" for labels, value in family.samples]
    return "\n".join(lines) + "\n"


def process_families() -> list[Family]:
    """This process, by the names of Prometheus' own clients."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[_RESIDENT_FIELD])
    open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only counted
    return [
        one("process_cpu_seconds_total", "counter", "CPU time used.", usage.ru_utime + usage.ru_stime),
        one("process_resident_memory_bytes", "gauge", "Resident memory.", float(pages * os.sysconf("SC_PAGE_SIZE"))),
        one("process_open_fds", "gauge", "Open file descriptors.", float(open_files)),
    ]


def controller_families(controllers: Iterable[Controller]) -> list[Family]:
    """Passes and queues."""
    found = [({"controller": controller.name}, controller) for controller in controllers]
    return [
        Family(
            "knodel_reconcile_total",
            "counter",
            "Passes over one key, by result.",
            tuple(
                ({**labels, "result": result}, float(count))
                for labels, controller in found
                for result, count in (("success", controller.passes - controller.failed), ("error", controller.failed))
            ),
        ),
        Family(
            "knodel_reconcile_seconds_total",
            "counter",
            "Time in passes.",
            tuple((labels, controller.busy_seconds) for labels, controller in found),
        ),
        Family(
            "knodel_workqueue_depth",
            "gauge",
            "Keys that wait for a pass.",
            tuple((labels, float(len(controller.queue))) for labels, controller in found),
        ),
    ]


def informer_families(informers: Iterable[Informer]) -> list[Family]:
    """How much is held in memory; of one kind, what all its informers hold."""
    held: dict[str, float] = {}
    for informer in informers:
        held[str(informer.kind)] = held.get(str(informer.kind), 0.0) + len(informer)
    samples = tuple(({"resource": resource}, count) for resource, count in held.items())
    return [Family("knodel_informer_objects", "gauge", "Objects in memory.", samples)]


def _labels(labels: Labels) -> str:
    said = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{said}}}" if said else ""
