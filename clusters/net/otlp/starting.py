"""Start the export of metrics; without a collector nothing is imported."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from clusters.net.exposition import Families
from clusters.net.otlp.environment import InvalidTelemetry, export_interval, wants

if TYPE_CHECKING:
    from clusters.net.otlp.metrics import PeriodicMetrics

log = logging.getLogger(__name__)


EXPORT_TIMEOUT: Final = 3.0
"""s that a stopping process waits for a collector."""


def export_if_configured(
    families: Callable[[], Families], service: str, environ: Mapping[str, str] = os.environ
) -> PeriodicMetrics | None:
    """Export the families of this process if the environment names a collector; as `start_metrics_export`."""
    try:
        if not wants("metrics", environ):
            return None
        interval = export_interval(environ)
    except InvalidTelemetry as error:
        log.warning("no metrics are sent: %s", error)
        return None
    return start_metrics_export(families, interval, service)


def start_metrics_export(
    families: Callable[[], Families], interval: float, service: str, version: str = ""
) -> PeriodicMetrics | None:
    """Export the families of this process every `interval` seconds, until the result is closed.

    Call it inside the event loop, which is asked for the families. Returns None with a warning where the SDK is
    missing, or where it refuses a variable, so that the process does its work without the export.
    """
    try:
        from clusters.net.otlp.export import MetricsExporter, make_resource
        from clusters.net.otlp.metrics import PeriodicMetrics

        exporter = MetricsExporter()
    except ImportError as error:
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        log.warning("no metrics are sent, %s is not installed: %s", error.name, install_command("knodel[tracing]"))
        return None
    except ValueError as error:
        log.warning("no metrics are sent: OTEL_…: %s: correct the variable", error)
        return None
    made = PeriodicMetrics(families, make_resource(service, version), exporter, asyncio.get_running_loop(), interval)
    made.start()
    return made
