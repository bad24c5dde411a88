"""The use of GPUs on PodAutoscalers: means over replicas, and values that are too old or invalid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.metrics.signals import Signals
from autoscaler.metrics.stat import Sample
from autoscaler.usage.signals import SIGNALS_ANNOTATION, VALID_FOR, mean_signals, read_signals, to_annotation
from clusters.base.objects import Object

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def sample(signals: Signals | None) -> Sample:
    return Sample(0.0, 0.0, 0.0, 0.0, 0.0, signals=signals)


def annotated(text: str) -> Object:
    return {"metadata": {"name": "a", "annotations": {SIGNALS_ANNOTATION: text}}}


def test_each_signal_is_the_mean_of_the_replicas_that_have_it() -> None:
    found = mean_signals(map(sample, (Signals(0.2, 0.5), Signals(0.4, None, 0.9), None)))
    assert found is not None
    assert found.gpu == pytest.approx(0.3)
    assert (found.memory, found.kv_cache) == (0.5, 0.9)
    assert mean_signals([sample(None)]) is None
    assert mean_signals([]) is None


def test_the_annotation_is_read_while_it_is_recent() -> None:
    text = to_annotation(Signals(0.43219, None, 0.2), NOW)
    assert text == '{"at":"2026-01-01T00:00:00Z","gpu":0.432,"kvCache":0.2}'
    assert read_signals(annotated(text), NOW + VALID_FOR) == Signals(0.432, None, 0.2)
    assert read_signals(annotated(text), NOW + VALID_FOR + timedelta(seconds=1)) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"at":"x"}', '{"at":"2026-01-01T00:00:00Z","gpu":"x"}'])
def test_what_is_not_readable_is_nothing(text: str) -> None:
    assert read_signals(annotated(text), NOW) is None
