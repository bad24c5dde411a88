"""What settings say of events is what the parts of eventing do; without a word they do what they do by themselves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.runtime.informer import Informers
from eventing import limits
from eventing.controller import expiry
from eventing.controller.source_controller import EventSourceController
from eventing.mapping.event_source import nowhere
from serving.platform.controllers import Controllers
from serving.platform.event_limits import bounds_of, limits_of
from serving.reconciler.flags import AllOn
from serving.types.settings.settings import EventSettings, Settings, SettingsError, settings_from_text
from tests.support.clusters import embedded_cluster


def test_without_settings_the_parts_have_their_own_bounds() -> None:
    assert bounds_of(EventSettings()) == expiry.DEFAULTS
    assert limits_of(EventSettings()) == limits.DEFAULTS


def test_settings_bound_what_is_kept_and_what_is_taken() -> None:
    said = settings_from_text("events: {retention: 24h, kept: 40_000, rate: 100, pending: 500}", "a file").events
    bounds = bounds_of(said)
    assert (bounds.lifetime, bounds.most, bounds.failed, bounds.cap) == (timedelta(days=1), 40_000, 10_000, 100_000)
    assert (limits_of(said).events, limits_of(said).pending) == (100.0, 500)


async def test_the_controller_counts_as_finely_as_the_webhook_bounds(tmp_path: Path) -> None:
    settings = Settings(events=EventSettings(pending=500))
    async with embedded_cluster(tmp_path / "cluster.db") as cluster:
        clock = SystemClock()
        made = Controllers(cluster, Informers(cluster, clock), settings, clock, AllOn(), nowhere)
        await made.close()
    [sources] = [part for part in made.parts if isinstance(part, EventSourceController)]
    assert sources._step == 50


def test_few_kept_events_forget_no_job_that_a_webhook_would_record_anew() -> None:
    bounds = bounds_of(EventSettings(kept=100))
    assert (bounds.most, bounds.failed, bounds.cap) == (100, expiry.DEFAULTS.failed, expiry.DEFAULTS.cap)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{retention: 1m}", "events.retention"),
        ("{kept: 1}", "events.kept"),
        ("{rate: 0}", "events.rate"),
        ("{pending: -1}", "events.pending"),
    ],
)
def test_what_would_forget_copies_or_take_nothing_is_refused(text: str, word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        settings_from_text(f"events: {text}", "a file")
