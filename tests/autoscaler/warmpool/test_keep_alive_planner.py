"""Recorded idle times, and the plan derived from them."""

from __future__ import annotations

import random
from dataclasses import replace

from autoscaler.warmpool.reasons import KeepRule
from autoscaler.warmpool.sizing.keep_alive_planner import ENOUGH, LEAST, Candidate, KeepAlivePlanner
from autoscaler.warmpool.sizing.planner import PoolView

MODEL = Candidate(usual=60.0, cold=30.0, claim=3.0)
POOL = PoolView(0, 20, 30.0)


def watched(means: dict[str, float], idle_times: int = 100) -> KeepAlivePlanner[str]:
    keeper, source = KeepAlivePlanner[str](), random.Random(1)
    for name, mean in means.items():
        for _ in range(idle_times):
            keeper.record_idle_time(name, source.expovariate(1.0 / mean), 2.0)
    return keeper


def test_before_enough_was_seen_every_model_is_kept_by_its_own_policy() -> None:
    keeper = watched({"iris": 10.0}, ENOUGH - 1)
    plan = keeper.plan({"iris": MODEL, "magika": replace(MODEL, usual=300.0)}, POOL)
    assert [hold.seconds for hold in plan.holds.values()] == [60.0, 300.0]
    assert plan.balance is None
    assert plan.holds["iris"].reason.message == "19 idle times of all models were recorded, a plan needs 20: kept 60 s"


def test_the_frequent_model_is_kept_and_the_rare_one_goes_to_the_pool() -> None:
    keeper = watched({"often": 20.0, **{f"rare-{number}": 2_000.0 for number in range(60)}})
    plan = keeper.plan(dict.fromkeys(["often", *(f"rare-{number}" for number in range(60))], MODEL), POOL)
    assert plan.holds["often"].seconds > 60.0
    assert plan.holds["rare-1"].seconds == LEAST
    assert plan.balance is not None
    assert plan.balance.size > 0


def test_a_reason_tells_what_was_seen_and_what_longer_would_save() -> None:
    keeper = watched({"iris": 20.0})
    reason = keeper.plan({"iris": MODEL, "new": MODEL}, PoolView()).holds["iris"].reason
    assert reason.rule is KeepRule.WORTH
    assert str(reason).startswith("WorthItsPrice: ")
    assert "of its 100 idle times end within" in reason.message


def test_a_model_of_which_nothing_was_seen_is_kept_like_the_others_and_says_so() -> None:
    keeper = watched({"iris": 20.0})
    assert keeper.plan({"iris": MODEL, "new": MODEL}, POOL).holds["new"].reason.rule is KeepRule.LIKE_OTHERS


def test_a_keep_alive_that_somebody_set_stays() -> None:
    keeper = watched({"often": 20.0, "set": 2_000.0})
    hold = keeper.plan({"often": MODEL, "set": replace(MODEL, usual=900.0, fixed=True)}, POOL).holds["set"]
    assert (hold.seconds, hold.reason.rule) == (900.0, KeepRule.FIXED)


def test_members_that_somebody_asked_for_are_paid_for_beside_the_keep_alives() -> None:
    keeper = watched({"often": 20.0, "rare": 600.0})
    models = {"often": MODEL, "rare": MODEL}
    asked, none = keeper.plan(models, PoolView(4, 4, 30.0)), keeper.plan(models, PoolView())
    assert asked.balance is not None
    assert asked.balance.size == 4
    assert asked.budget == none.budget + 4
    assert asked.holds["often"].seconds >= 60.0


def test_models_for_which_many_wait_are_kept_longer() -> None:
    means = {f"model-{number}": 300.0 for number in range(10)}
    keeper = watched(means)
    for _ in range(20):
        keeper.record_start("model-0", 30.0, 300.0, claimed=False)
    plan = keeper.plan(dict.fromkeys(means, MODEL), PoolView())
    assert plan.holds["model-0"].seconds > max(plan.holds[f"model-{number}"].seconds for number in range(1, 10))


def test_a_start_that_took_no_time_tells_nothing() -> None:
    keeper = KeepAlivePlanner[str]()
    keeper.record_start("iris", 0.0, 0.0, claimed=True)
    assert len(keeper) == 0


def test_a_model_that_is_gone_is_forgotten() -> None:
    keeper = watched({"iris": 10.0})
    keeper.forget("iris")
    assert len(keeper) == 0
    assert keeper.plan({"iris": MODEL}, POOL).holds["iris"].reason.rule is KeepRule.USUAL
