"""The states of a rollout: the table in `serving.reconciler.rollout.steps`, also with restarts in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from serving.reconciler.rollout.judging.verdict import UNANSWERED, Decision
from serving.reconciler.rollout.schedule import MOST_DOWN, SETTLING, seconds_to_pass
from serving.reconciler.rollout.split import Situation
from serving.reconciler.rollout.state import STABLE_FAILS, RolloutState, held_by, moment
from serving.reconciler.rollout.steps import RolloutInputs, advance_rollout
from serving.reconciler.rollout.versions import Failure
from serving.types.rollout import Judge, OnInsufficientTraffic, Rollout
from tests.serving.reconciler.rollout.play import NEW, NEWER, OLD, START, Play, rule
from tests.serving.reconciler.rollout.revisions import versions


def test_a_good_version_takes_the_default_steps_and_is_promoted() -> None:
    play = Play()
    state = play.until("Promoted")
    assert [(one.percent, one.judgement.verdict.decision if one.judgement else "") for one in state.passed] == [
        (10, "pass"), (50, "pass"), (100, "pass"),
    ]  # fmt: skip
    assert (state.candidate, state.stable, state.percent) == (NEW, OLD, 100)
    assert 180 <= play.seconds() <= 200


def test_the_judge_looks_every_interval_and_once_more_when_the_time_is_over() -> None:
    play = Play(rule=rule(steps=(100,), step_duration=25.0))
    play.until("Promoted")
    gaps = [later - earlier for (earlier, _), (later, _) in zip(play.asked, play.asked[1:], strict=False)]
    assert gaps[:2] == [10.0, 10.0]
    assert 5 <= gaps[2] <= 7
    assert [over for _, over in play.asked] == [False, False, False, True]


def test_nothing_begins_without_a_version_to_go_back_to() -> None:
    play = Play(ready=[True], stable=None)
    assert play.step() is None
    play.stable = OLD
    assert play.step() is None


def test_a_version_that_starts_has_no_traffic_and_its_rollout_is_there() -> None:
    play = Play(ready=[True, None])
    state = play.passes()
    assert (state.phase, state.percent, state.started_at) == ("Progressing", 0, moment(START))
    play.ready = [True, True]
    state = play.passes(30.0, seen=False)
    assert (state.percent, state.step, state.seen_at) == (10, 0, "")


@pytest.mark.parametrize("unheld", [NEW, OLD])
def test_no_version_gets_traffic_by_a_rollout_until_the_digests_of_both_are_recorded(unheld: str) -> None:
    play = Play(rule=rule(steps=(100,)), unheld={unheld})
    for _ in range(600):
        state = play.passes(1.0)
        assert (state.phase, state.percent) == ("Progressing", 0)
    record = f"the digest of the files of {unheld} is not recorded yet: a later replica could load different bytes"
    assert state.reasons == (f"{NEW} is ready", record)
    play.unheld.clear()
    assert play.until("Promoted").candidate == NEW


def test_what_a_person_promotes_does_not_wait_for_a_record() -> None:
    play = Play(unheld={NEW})
    play.passes()
    play.says(f"promote@{NEW}")
    assert play.passes(1.0).phase == "Promoted"


def test_a_steps_time_begins_when_the_gateway_shows_it() -> None:
    play = Play()
    play.passes(seen=False)
    for _ in range(100):
        state = play.passes(1.0, seen=False)
        assert not state.seen_at
    play.passes(1.0)
    state = play.passes(1.0)
    assert state.seen_at == moment(play.now)
    state = play.passes(59.0)
    assert state.step == 0
    state = play.passes(1.0)
    assert (state.step, state.percent) == (1, 50)


@pytest.mark.parametrize("percent", [10, 50, 100])
def test_a_bad_version_is_rolled_back_at_the_first_look_that_says_so(percent: int) -> None:
    play = Play()
    play.at_step(percent)
    play.early = play.verdict = "fail"
    state = play.until("RolledBack", most=11)
    assert state.reasons == ("the judge says fail",)
    assert state.judgement is not None
    assert state.percent == 0
    assert play.passes(59.0) == state
    assert play.passes(1000.0) == replace(state, steady=True)


def test_a_version_that_fails_before_it_has_traffic_has_failed_and_may_recover() -> None:
    play = Play(ready=[True, None])
    play.passes()
    play.ready = [True, False]
    state = play.passes(5.0)
    assert (state.phase, state.percent) == ("Failed", 0)
    assert "ExitCode1: wrong digest" in state.reasons[0]
    play.ready = [True, True]
    assert play.until("Promoted").candidate == NEW


def test_a_version_that_crashes_under_traffic_and_comes_back_goes_on() -> None:
    play = Play()
    play.at_step(10)
    for _ in range(4):
        play.ready = [True, False]
        assert play.passes(MOST_DOWN - 1.0).phase == "Progressing"
        play.ready = [True, True]
        assert play.passes(1.0).down_since == ""
    assert play.until("Promoted").candidate == NEW


@pytest.mark.parametrize("later", [False, None])
def test_a_version_that_stays_down_under_traffic_is_rolled_back_for_good(later: bool | None) -> None:
    play = Play()
    play.at_step(10)
    play.ready = [True, False]
    down = play.passes(1.0)
    assert (down.phase, down.down_since) == ("Progressing", moment(play.now))
    play.ready = [True, later]
    assert play.passes(MOST_DOWN - 1.0).phase == "Progressing"
    assert seconds_to_pass(Rollout(), play.passes(), play.now) == 1.0
    state = play.passes(1.0)
    assert (state.phase, state.down_since) == ("RolledBack", "")
    assert state.reasons[0] == f"{NEW} has 10 % of the traffic and has not been ready for 60 s"
    assert len(state.reasons) == (1 if later is None else 2)
    play.ready = [True, True]
    assert play.passes(1.0) == state


@pytest.mark.parametrize("answer", ["hold", "promote", "rollback"])
@pytest.mark.parametrize("verdict", ["pass", "wait"])
def test_no_step_passes_while_the_version_is_down(answer: OnInsufficientTraffic, verdict: Decision) -> None:
    play = Play(rule=rule(on_insufficient_traffic=answer), verdict=verdict)
    play.at_step(10)
    play.passes(50.0)
    play.ready = [True, False]
    play.passes(1.0)
    state = play.passes(20.0)
    assert (state.phase, state.step) == ("Progressing", 0)
    assert state.reasons == (f"step 1 (10 %) is held: {NEW} is down",)


def test_a_version_whose_variants_loaded_different_bytes_is_rolled_back_at_once() -> None:
    play = Play()
    state = play.at_step(10)
    old, new = versions(True, True)
    differs = replace(new, failure=Failure(NEW, "DigestsDiffer", "deploy again", final=True))
    ended = advance_rollout(
        play.rule, Situation((old, differs), "g2", OLD, rollout=state), RolloutInputs(), state, play.now
    )
    assert ended is not None
    assert (ended.phase, ended.reasons) == ("RolledBack", (f"{NEW}: DigestsDiffer: deploy again",))


@pytest.mark.parametrize(
    ("answer", "phase"), [("hold", "Progressing"), ("promote", "Promoted"), ("rollback", "RolledBack")]
)
def test_too_little_traffic_is_answered_as_the_spec_says_once_the_time_is_over(answer: str, phase: str) -> None:
    play = Play(rule=rule(steps=(100,), on_insufficient_traffic=answer), verdict="wait")
    state = play.at_step(100)
    for _ in range(59):
        state = play.passes(1.0)
        assert state.phase == "Progressing"
    play.passes(2.0)
    state = play.passes(10.0)
    assert state.phase == phase
    if answer == "hold":
        assert "too little traffic for a verdict" in state.reasons[0]
        play.verdict = "pass"
        assert play.passes(10.0).phase == "Promoted"


def test_a_step_that_never_comes_into_force_ends_the_rollout() -> None:
    play = Play(rule=rule(progress_deadline=30.0))
    play.passes(seen=False)
    assert play.passes(29.0, seen=False).phase == "Progressing"
    state = play.passes(1.0, seen=False)
    assert (state.phase, state.reasons) == (
        "RolledBack",
        ("step 1 (10 %) was not in force within 30 s: only 10 % was",),
    )


def test_a_pause_stops_the_time_of_a_step_and_resume_gives_back_what_was_left() -> None:
    play = Play()
    play.at_step(10)
    play.passes(40.0)
    play.says(f"pause@{NEW}")
    assert play.passes(0.0).phase == "Paused"
    assert play.passes(3600.0).percent == 10
    play.says("")
    state = play.passes(0.0)
    assert state.phase == "Progressing"
    assert play.passes(19.0).step == 0
    assert play.passes(2.0).step == 1


def test_a_paused_version_that_is_bad_is_rolled_back() -> None:
    play = Play()
    play.at_step(10)
    play.says(f"pause@{NEW}")
    play.passes(1.0)
    play.early = play.verdict = "fail"
    assert play.until("RolledBack", most=11).reasons == ("the judge says fail",)


def test_a_pause_before_the_first_step_holds_it_at_nothing() -> None:
    play = Play(ready=[True, None])
    play.says(f"pause@{NEW}")
    play.passes()
    play.ready = [True, True]
    assert play.passes(600.0).percent == 0
    play.says("")
    play.passes(1.0)
    assert play.passes(1.0).percent == 10


def test_traffic_by_hand_pauses_a_rollout_and_begins_none() -> None:
    play = Play()
    play.at_step(10)
    play.by_hand = True
    state = play.passes(1.0)
    assert (state.phase, "spec.traffic" in state.reasons[0]) == ("Paused", True)
    play.by_hand = False
    assert play.passes(1.0).phase == "Progressing"
    fresh = Play(by_hand=True)
    assert fresh.step() is None


def test_abort_gives_all_back_and_promote_overrules_it() -> None:
    play = Play()
    play.at_step(50)
    play.says(f"abort@{NEW}")
    state = play.passes(1.0)
    assert (state.phase, state.reasons) == ("RolledBack", ("aborted manually at 50 %",))
    assert play.passes(1.0) == state
    play.says(f"promote@{NEW}")
    assert play.passes(1.0).phase == "Promoted"
    play.says(f"abort@{NEW}")
    assert play.passes(1.0).phase == "Promoted"


def test_promote_waits_until_the_version_is_ready() -> None:
    play = Play(ready=[True, None])
    play.says(f"promote@{NEW}")
    assert play.passes().phase == "Progressing"
    play.ready = [True, True]
    state = play.passes(1.0)
    assert (state.phase, state.percent) == ("Promoted", 100)


def test_a_command_for_another_revision_means_nothing() -> None:
    play = Play()
    play.at_step(10)
    for verb in ("pause", "abort", "promote"):
        play.says(f"{verb}@{OLD}")
        assert play.passes(1.0).phase == "Progressing"


def test_a_newer_version_supersedes_the_one_under_way() -> None:
    play = Play()
    play.at_step(50)
    play.ready = [True, True, None]
    state = play.passes(1.0)
    assert (state.phase, state.candidate, state.stable, state.percent) == ("Progressing", NEWER, OLD, 0)
    play.ready = [True, True, True]
    assert play.until("Promoted").candidate == NEWER


def test_after_a_rollback_the_next_version_starts_as_usual() -> None:
    play = Play()
    play.at_step(10)
    play.early = play.verdict = "fail"
    play.until("RolledBack")
    play.ready, play.early, play.verdict = [True, True, True], "wait", "pass"
    assert play.until("Promoted").candidate == NEWER


def test_a_spec_that_asks_for_the_stable_version_again_ends_the_rollout() -> None:
    play = Play()
    play.at_step(10)
    play.ready = [True]
    state = play.passes(1.0)
    assert (state.phase, state.reasons) == ("RolledBack", (f"the spec was changed back to that of {OLD}",))


def test_without_a_rollout_in_the_spec_the_one_under_way_ends_with_all_for_the_new_version() -> None:
    play = Play()
    play.at_step(10)
    play.rule = None
    assert play.passes(1.0).phase == "Promoted"
    play.ready = [True, True, True]
    play.stable = NEW
    assert play.passes(1.0).candidate == NEW


def test_steps_that_were_edited_meanwhile_are_followed() -> None:
    play = Play()
    play.at_step(50)
    play.rule = rule(steps=(5, 20, 100))
    state = play.at_step(20)
    assert state.step == 1
    play.rule = rule(steps=(100,))
    assert play.at_step(100).step == 1
    assert play.until("Promoted").percent == 100


def test_a_step_is_reached_in_parts_as_far_as_replicas_are_there() -> None:
    play = Play(rule=rule(steps=(50, 100)), reach=25)
    play.passes()
    for _ in range(5):
        state = play.passes(1.0)
        assert (state.percent, state.seen_at) == (25, "")
    play.reach = 100
    assert play.passes(1.0).percent == 50
    assert play.passes(1.0).seen_at


def test_counts_begin_anew_with_every_percent_but_stay_for_the_stable_version_at_a_hundred() -> None:
    play = Play(rule=rule(steps=(50, 100)))
    state = play.at_step(50)
    assert (state.stable_counts.requests, state.candidate_counts.requests) == (10, 5)
    while state.percent == 50:
        state = play.passes(1.0, seen=False)
    assert (state.percent, state.stable_counts.requests, state.candidate_counts.requests) == (100, 10, 0)
    assert state.judgement is None


def test_every_state_on_the_way_comes_back_from_its_json_as_it_was() -> None:
    play = Play(standing={"magika": 3})
    for _ in range(200):
        state = play.passes(1.0)
        assert RolloutState.from_json(state.to_json()) == state
    assert play.until("Promoted", most=1)


def test_the_same_pass_twice_is_one() -> None:
    """A controller that restarts between two passes repeats nothing and skips nothing."""
    play = Play()
    for _ in range(250):
        first = play.passes(1.0, seen=False)
        again = play.passes(0.0, seen=False)
        assert (again.step, again.percent, again.phase) == (first.step, first.percent, first.phase)
        play.passes(0.0)
    assert play.state is not None
    assert play.state.phase == "Promoted"


@pytest.mark.parametrize("gap", [1.0, 7.0, 60.0, 500.0])
def test_a_controller_that_was_away_for_long_skips_no_step(gap: float) -> None:
    play = Play(rule=rule(progress_deadline=1e6))
    seen: list[int] = []
    for _ in range(400):
        state = play.passes(gap)
        if state is not None and state.percent not in seen:
            seen.append(state.percent)
    assert seen == [10, 50, 100]
    assert play.state is not None
    assert [one.percent for one in play.state.passed] == [10, 50, 100]


def test_a_running_rollout_asks_for_its_next_pass_and_an_ended_one_for_none() -> None:
    play = Play(rule=rule(judge=Judge(interval=30.0), progress_deadline=20.0))
    state = play.passes(seen=False)
    assert play.rule is not None
    assert seconds_to_pass(play.rule, state, START + timedelta(seconds=5)) == 15.0
    state = play.at_step(10)
    later = seconds_to_pass(play.rule, state, play.now)
    assert later is not None
    assert 0.0 < later <= 30.0
    play.says(f"abort@{NEW}")
    ended = play.passes(1.0)
    assert seconds_to_pass(play.rule, ended, play.now) == SETTLING
    assert seconds_to_pass(play.rule, play.passes(SETTLING), play.now) is None


def test_a_candidate_that_was_collected_ends_its_rollout() -> None:
    play = Play()
    state = play.at_step(10)
    situation = Play(ready=[True]).situation()
    gone = replace(situation, generation="unknown", rollout=state)
    ended = advance_rollout(play.rule, gone, RolloutInputs(), state, play.now)
    assert ended is not None
    assert (ended.phase, ended.reasons) == ("RolledBack", (f"{NEW} no longer exists",))


@pytest.mark.parametrize("policy", ["hold", "promote", "rollback"])
def test_without_anything_to_compare_with_no_step_passes_or_fails(policy: OnInsufficientTraffic) -> None:
    play = Play(rule=rule(on_insufficient_traffic=policy), early="hold", verdict="hold")
    play.at_step(10)
    for _ in range(200):
        state = play.passes(5.0)
    assert (state.phase, state.percent) == ("Progressing", 10)
    assert state.reasons == ("step 1 (10 %) is held", "the judge says hold")
    assert held_by(state) == (STABLE_FAILS, "the judge says hold")
    play.early = play.verdict = "pass"
    assert play.until("Promoted").percent == 100


@pytest.mark.parametrize(
    ("policy", "phase"), [("hold", "Progressing"), ("promote", "Progressing"), ("rollback", "RolledBack")]
)
def test_a_version_that_hangs_is_not_promoted_for_want_of_traffic(policy: OnInsufficientTraffic, phase: str) -> None:
    numbers = {"needed": 100.0, UNANSWERED: 1.0}
    play = Play(rule=rule(on_insufficient_traffic=policy), verdict="wait", numbers=numbers)
    play.at_step(10)
    for _ in range(200):
        state = play.passes(5.0)
    assert (state.phase, state.percent) == (phase, 10 if phase == "Progressing" else 0)
    assert (held_by(state) is None) == (phase == "RolledBack")
    play.numbers = {"needed": 100.0}
    if policy == "promote":
        assert play.until("Promoted").percent == 100
