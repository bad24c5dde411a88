"""Rollouts with combinations of commands, edits, failures and slow loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import moment
from serving.reconciler.rollout.steps import RolloutInputs, advance_rollout
from serving.reconciler.rollout.versions import versions_of
from tests.serving.reconciler.rollout.play import NEW, OLD, START, Play, rule
from tests.serving.reconciler.rollout.revisions import revision


def test_a_split_by_hand_in_place_of_the_rollout_promotes_nothing() -> None:
    play = Play()
    play.at_step(10)
    play.rule, play.by_hand = None, True
    for _ in range(100):
        assert play.passes(10.0, seen=False).phase == "Paused"
    play.shares = {NEW: 100}
    assert play.passes(1.0, seen=False).phase == "Promoted"


def test_a_split_by_hand_that_goes_as_the_rollout_did_gives_all_to_the_latest_ready_version() -> None:
    play = Play()
    play.at_step(10)
    play.rule, play.by_hand = None, True
    play.passes(10.0, seen=False)
    play.by_hand = False
    assert play.passes(1.0, seen=False).phase == "Promoted"


@pytest.mark.parametrize("ready", [None, False])
def test_without_a_rollout_in_the_spec_a_version_that_was_never_ready_is_not_promoted(ready: bool | None) -> None:
    play = Play(ready=[True, None])
    play.passes()
    play.rule, play.ready = None, [True, ready]
    state = play.passes(1.0)
    assert (state.phase, state.percent) == ("Progressing" if ready is None else "Failed", 0)
    play.ready = [True, True]
    assert play.passes(1.0).phase == "Promoted"


def test_a_failed_version_that_is_not_the_newest_any_more_is_not_promoted_when_it_recovers() -> None:
    play = Play(ready=[True, None])
    play.passes()
    play.ready = [True, False]
    play.passes(1.0)
    play.rule, play.ready = None, [True, True, None]
    assert play.passes(1.0).phase == "Failed"


def test_at_a_hundred_the_baseline_is_the_last_step_and_what_came_on_the_way() -> None:
    play = Play(rule=rule(steps=(50, 100)))
    state = play.at_step(50)
    play.reach = 75
    while state.percent == 50:
        state = play.passes(1.0)
    assert (state.percent, state.stable_counts.requests, state.baseline.requests) == (75, 0, 10)
    play.passes(1.0)
    play.reach = 100
    while state.percent != 100:
        state = play.passes(1.0, seen=False)
    assert (state.stable_counts.requests, state.candidate_counts.requests, state.baseline.requests) == (20, 0, 0)


def test_a_first_step_of_a_hundred_waits_until_the_stable_version_is_counted() -> None:
    play = Play(rule=rule(steps=(100,)))
    for _ in range(60):
        state = play.passes(1.0)
        assert state.percent == 0
    assert state.reasons == (f"{NEW} is ready; measuring {OLD} first: the step leaves it no traffic",)
    state = play.passes(1.0, seen=False)
    assert (state.percent, state.stable_counts.requests) == (100, 10)


def test_after_a_long_load_that_step_starts_at_once_and_a_short_one_waits_no_longer_than_it_takes() -> None:
    slow = Play(rule=rule(steps=(100,)), ready=[True, None])
    slow.passes()
    for _ in range(10):
        slow.passes(10.0)
    slow.ready = [True, True]
    assert slow.passes(1.0).percent == 100
    short = Play(rule=rule(steps=(100,), step_duration=2.0))
    short.passes()
    assert [short.passes(1.0).percent for _ in range(2)] == [0, 100]


def test_steps_that_were_edited_upwards_have_their_own_deadline_and_ask_for_replicas_again() -> None:
    play = Play(verdict="wait", reach=10)
    play.at_step(10)
    for _ in range(120):
        state = play.passes(10.0)
    assert state.steady
    play.rule = rule(steps=(30, 100))
    state = play.passes(1.0)
    assert (state.phase, state.percent, state.seen_at, state.steady) == ("Progressing", 10, "", False)
    assert play.passes(599.0).phase == "Progressing"
    assert play.passes(1.0).phase == "RolledBack"


def test_a_version_of_variants_begins_once_all_of_it_is_made() -> None:
    def made(*names: str) -> Situation:
        both = "a100,v100"
        old = [revision(1, configuration=f"magika-{name}", generation="x", variants=both) for name in ("a100", "v100")]
        new = [revision(2, None, configuration=f"magika-{name}", generation="y", variants=both) for name in names]
        return Situation(versions_of([*old, *new]), "y", "magika-a100-00001")

    assert advance_rollout(rule(), made("v100"), RolloutInputs(), None, START) is None
    state = advance_rollout(rule(), made("v100", "a100"), RolloutInputs(), None, START)
    assert state is not None
    assert state.candidate == "magika-a100-00002"
    named_otherwise = replace(state, candidate="magika-v100-00002")
    again = advance_rollout(rule(), made("v100", "a100"), RolloutInputs(), named_otherwise, START)
    assert again is not None
    assert (again.candidate, again.phase) == ("magika-v100-00002", "Progressing")


def test_a_rollout_that_begins_while_a_rollback_settles_counts_from_what_stood_before() -> None:
    play = Play(standing={"magika": 4})
    play.at_step(50)
    play.says(f"abort@{NEW}")
    play.passes(1.0)
    play.ready, play.standing = [True, True, None], {"magika": 1}
    assert play.passes(1.0).stood == {"magika": 4}


def test_what_a_look_saw_in_the_pass_that_resumes_is_kept() -> None:
    play = Play()
    play.at_step(10)
    play.says(f"pause@{NEW}")
    play.passes(1.0)
    play.says("")
    state = play.passes(10.0)
    assert state.judgement is not None
    assert (state.phase, state.judgement.at) == ("Progressing", moment(play.now))
