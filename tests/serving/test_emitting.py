"""The emitter as settings and environment want it."""

from __future__ import annotations

import pytest

from eventing.outbound.tracing import OtelSpans
from serving.platform.outcome_emitter import make_spans
from serving.types.settings.settings import Settings, SettingsError, load_settings

COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


def test_nobody_is_told_by_default() -> None:
    assert (Settings().events.sink, Settings().events.format) == ("", "knodel")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("KNODEL_EVENTS_SINK", "broker", "events.sink: 'broker' is not a URL"),
        ("KNODEL_EVENTS_SINK", "http://u:p@broker", "events.sink"),
        ("KNODEL_EVENTS_FORMAT", "xml", "events.format: 'xml' is unknown; known: knodel, cdevents"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(environ={variable: value})


def test_spans_go_where_the_environment_says() -> None:
    assert make_spans({}) is None
    assert make_spans({**COLLECTOR, "OTEL_SDK_DISABLED": "true"}) is None
    made = make_spans(COLLECTOR)
    assert isinstance(made, OtelSpans)
    made.close()
