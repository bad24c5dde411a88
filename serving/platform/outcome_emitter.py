"""Create the emitter of outcome events from settings and environment."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import cast

from clusters.base.api import Cluster
from clusters.base.clock import Clock
from clusters.base.distribution import install_command
from clusters.net.otlp.environment import InvalidTelemetry, wants
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from eventing.controller.controller import COMPONENT
from eventing.outbound.emitter import Emitter
from eventing.outbound.service_events import TRANSLATIONS, Format
from eventing.outbound.sink import HttpSink
from eventing.outbound.spans import Spans
from serving.reconciler.rollout.outcomes import final_entries
from serving.types.settings.settings import EventSettings

log = logging.getLogger(__name__)


def make_emitter(
    cluster: Cluster,
    informers: Informers,
    settings: EventSettings,
    clock: Clock,
    environ: Mapping[str, str] = os.environ,
) -> Emitter:
    """Return the emitter. Call it before `informers.run()`."""
    return Emitter(
        cluster,
        informers,
        sink=HttpSink(settings.sink) if settings.sink else None,
        clock=clock,
        recorder=Recorder(cluster, COMPONENT, clock),
        translate=TRANSLATIONS[cast(Format, settings.format)],
        spans=make_spans(environ),
        final_entries=final_entries,
    )


def make_spans(environ: Mapping[str, str]) -> Spans | None:
    """Return spans for the collector that the environment names, or None without a collector or the SDK."""
    try:
        if not wants("traces", environ):
            return None
    except InvalidTelemetry as error:
        log.warning("events are not traced: %s", error)
        return None
    try:
        from clusters.net.otlp.export import span_processor
        from eventing.outbound.tracing import OtelSpans
    except ImportError as error:
        log.warning("events are not traced (%s): %s", error, install_command("knodel[tracing]"))
        return None
    return OtelSpans(span_processor())
