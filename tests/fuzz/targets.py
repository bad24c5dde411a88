"""All that is fuzzed, by name."""

from __future__ import annotations

from tests.fuzz import archives, decoders, downloads, events, framing

TARGETS = {
    "decoder": decoders.TARGETS,
    "event": events.TARGETS,
    "archive": archives.TARGETS,
    "framing": framing.TARGETS,
    "download": downloads.TARGETS,
}
