"""When the next pass over a rollout is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from serving.reconciler.rollout.schedule import OVERDUE, SETTLING, seconds_to_pass
from tests.serving.reconciler.rollout.play import NEW, Play, rule


def asked_for(play: Play, seconds: float) -> int:
    """Return the number of passes that the rollout needs in this time, when nothing changes."""
    end, passes = play.now + timedelta(seconds=seconds), 0
    while play.now < end and passes < 10_000:
        assert play.state is not None
        looks = play.rule is not None and not play.by_hand
        wait = seconds_to_pass(play.rule or rule(), play.state, play.now, judged=looks)
        if wait is None:
            break
        assert wait > 0.0
        play.passes(wait, seen=False)
        passes += 1
    return passes


def by_hand(play: Play) -> None:
    play.at_step(10)
    play.by_hand = True


def paused_early(play: Play) -> None:
    play.at_step(10)
    play.says(f"pause@{NEW}")


def paused_on_the_way(play: Play) -> None:
    play.reach = 25
    while play.passes(1.0).percent != 25:
        pass
    play.says(f"pause@{NEW}")


def edited_and_waiting(play: Play) -> None:
    play.at_step(10)
    play.rule, play.reach = rule(steps=(30, 100)), 10


def loading(play: Play) -> None:
    play.ready, play.rule = [True, None], rule(steps=(100,))


def unasked_and_loading(play: Play) -> None:
    play.ready = [True, None]
    play.passes()
    play.rule = None


def rolled_back(play: Play) -> None:
    play.at_step(50)
    play.says(f"abort@{NEW}")


@pytest.mark.parametrize(
    "way", [by_hand, paused_early, paused_on_the_way, edited_and_waiting, loading, unasked_and_loading, rolled_back]
)
def test_a_rollout_that_stands_asks_for_no_more_passes_than_its_looks_need(way: Callable[[Play], None]) -> None:
    play = Play()
    way(play)
    play.passes(1.0)
    assert asked_for(play, 900.0) <= 900 / 10 + 10


def test_what_was_due_and_not_done_is_asked_for_again_a_little_later() -> None:
    play = Play()
    state = play.at_step(10)
    assert play.rule is not None
    assert seconds_to_pass(play.rule, state, play.now + timedelta(hours=1)) == OVERDUE


def test_a_pause_settles_so_that_requests_decide_the_replicas_of_both_versions() -> None:
    for way in (paused_early, paused_on_the_way):
        play = Play()
        way(play)
        play.passes(1.0)
        assert play.passes(SETTLING).steady
        play.says("")
        assert play.passes(1.0).steady is (way is paused_early)
