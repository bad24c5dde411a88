"""A rollout whose times were written by a clock that was set afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.schedule import seconds_to_pass
from serving.reconciler.rollout.state import Judgement, Phase, RolloutState, moment, rollout_of, seconds_between
from serving.types.rollout import Rollout

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = moment(NOW + timedelta(days=30))
EARLIER = moment(NOW - timedelta(seconds=20))
RULE = Rollout()
WITHIN = 20.0
"""s until another leader finds what the last one wrote, by one clock."""


def state(at: str) -> RolloutState:
    """A step in force, all of whose times are the same."""
    look = Judgement(Verdict("pass", (), {}), at)
    return RolloutState("Progressing", "m-2", "m-1", at, at, percent=RULE.steps[0], seen_at=at, judgement=look)


@pytest.mark.fault("K9")
def test_a_step_that_began_in_the_future_begins_now_and_not_in_30_days() -> None:
    found = state(LATER).not_after(NOW)
    assert found.judgement is not None
    assert {found.since, found.seen_at, found.judgement.at} == {moment(NOW)}
    assert found.started_at == LATER  # it tells this rollout from others
    assert (seconds_to_pass(RULE, state(LATER), NOW) or 0.0) > 86_400
    assert (seconds_to_pass(RULE, found, NOW) or 0.0) <= RULE.step_duration


def test_times_of_the_past_stay() -> None:
    paused = replace(state(EARLIER), phase="Paused", paused_at=EARLIER)
    assert paused.not_after(NOW) == paused
    assert state(moment(NOW)).not_after(NOW) == state(moment(NOW))


def test_what_has_not_happened_has_still_not_happened() -> None:
    begun = RolloutState("Progressing", "m-2", "m-1", LATER, LATER)
    found = begun.not_after(NOW)
    assert (found.seen_at, found.paused_at, found.ended_at, found.judgement) == ("", "", "", None)
    assert seconds_between(found.since, NOW) == 0.0


@pytest.mark.fault("K9")
@pytest.mark.parametrize("of_the_clock", [timedelta(minutes=1), timedelta(days=30), timedelta(days=-30)])
@pytest.mark.parametrize("phase", ["Progressing", "Paused"])
def test_who_takes_a_rollout_up_finds_each_wait_as_far_as_it_was_written_last(
    phase: Phase, of_the_clock: timedelta
) -> None:
    begin = NOW - timedelta(seconds=50)
    last = moment(NOW - timedelta(seconds=10))
    paused = last if phase == "Paused" else ""
    written = replace(
        state(moment(begin)), phase=phase, paused_at=paused, judgement=Judgement(Verdict("pass", (), {}), last)
    )
    now = NOW + of_the_clock
    found = written.taken_up(now, WITHIN)
    assert found.judgement == written.judgement  # as it was: the next one is due
    assert found.paused_at == (moment(now) if paused else "")
    assert seconds_between(found.seen_at, now) == seconds_between(found.since, now) == 40.0
    assert replace(found, since="", seen_at="", paused_at="") == replace(written, since="", seen_at="", paused_at="")


@pytest.mark.fault("K9")
@pytest.mark.parametrize("gap", [0.0, 1.0, WITHIN])
def test_who_takes_a_rollout_up_soon_by_the_same_clock_takes_nothing_from_its_waits(gap: float) -> None:
    written = replace(state(EARLIER), seen_at=moment(NOW - timedelta(seconds=gap)), judgement=None)
    assert written.taken_up(NOW, WITHIN) == written
    late = NOW + timedelta(seconds=WITHIN + 0.5)
    assert written.taken_up(late, WITHIN) != written


def test_a_rollout_that_has_ended_is_not_taken_up() -> None:
    ended = replace(state(EARLIER), phase="Promoted", ended_at=EARLIER)
    assert ended.taken_up(NOW, WITHIN / 2) == ended


@pytest.mark.fault("K14")
def test_fields_of_a_newer_version_of_ours_are_kept() -> None:
    written = {**state(EARLIER).to_json(), "mood": {"of": "tomorrow"}}
    found = rollout_of({"status": {"rollout": written}})
    assert found is not None
    assert replace(found, percent=50).to_json()["mood"] == {"of": "tomorrow"}
