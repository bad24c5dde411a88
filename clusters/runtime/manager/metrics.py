"""Prometheus metrics of controllers and informers."""

from __future__ import annotations

from collections.abc import Iterable

from clusters.net.exposition import Families, Family, Histogram, one, page_of, process_families
from clusters.runtime.controller import Controller
from clusters.runtime.informer import Informer

__all__ = [
    "Families", "Family", "Histogram", "controller_families", "informer_families", "one", "page_of", "process_families",
]  # fmt: skip


def controller_families(controllers: Iterable[Controller]) -> list[Family]:
    """Return passes, their time, and queue depths of the controllers."""
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
    """Return the number of objects in memory for each kind, over all its informers."""
    held: dict[str, float] = {}
    for informer in informers:
        held[str(informer.kind)] = held.get(str(informer.kind), 0.0) + len(informer)
    samples = tuple(({"resource": resource}, count) for resource, count in held.items())
    return [Family("knodel_informer_objects", "gauge", "Objects in memory.", samples)]
