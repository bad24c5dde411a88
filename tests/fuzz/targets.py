"""All that is fuzzed, by name."""

from __future__ import annotations

from tests.fuzz import admission, archives, decoders, downloads, events, filters, framing, routes, throttle

TARGETS = {
    "decoder": decoders.TARGETS,
    "event": events.TARGETS,
    "admission": admission.TARGETS,
    "route": routes.TARGETS,
    "filter": filters.TARGETS,
    "throttle": throttle.TARGETS,
    "archive": archives.TARGETS,
    "framing": framing.TARGETS,
    "download": downloads.TARGETS,
}
