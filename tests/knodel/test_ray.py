"""The policy of Ray Serve: without Ray, on contexts of it. `tests/long/test_ray_policy.py` runs it in Ray."""

from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from autoscaler.scaling.decider import decide
from autoscaler.scaling.reasons import Rule, render
from autoscaler.scaling.table import DeciderState, Observations, Specs
from autoscaler.types import InvalidPolicy
from knodel.ray import Policy, checked
from tests.support.ray_context import RayConfig, RayContext

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("ray_contexts.csv")
"""Calls of a policy by Ray 2.60 during `loadtests/ray_policy`: 16 callers for 20 s, then none."""
CALL = 0.1
"""Seconds between two calls of Ray's controller."""
LOADED = RayContext(total_num_requests=16.0, total_queued_requests=12.0)


class Calls:
    """A policy that Ray's controller calls; replicas start at once, unless `held`."""

    def __init__(self, policy: Policy, now: float = 1000.0) -> None:
        self.policy, self.now = policy, now

    def call(self, context: RayContext, seconds: float = CALL) -> int:
        """Return the last answer to calls with this context for `seconds`."""
        for _ in range(round(seconds / CALL)):
            self.now += CALL
            answer = self.policy.decide(context, self.now)
        return answer

    def follow(self, context: RayContext, seconds: float) -> RayContext:
        """Call for `seconds`, and give Ray's answer to the policy's, as Ray does. Return the last context."""
        for _ in range(round(seconds / CALL)):
            answer = self.call(context)
            context = replace(context, target_num_replicas=answer, current_num_replicas=answer)
        return context


def idle(context: RayContext) -> RayContext:
    return replace(context, total_num_requests=0.0, total_queued_requests=0.0)


class Recorded(NamedTuple):
    now: float
    context: RayContext


def recorded() -> Iterator[Recorded]:
    for line in RECORDED.read_text().splitlines()[1:]:
        now, running, target, total, queued = map(float, line.split(","))
        yield Recorded(now, RayContext(int(running), int(target), total, queued))


def test_the_answers_are_those_of_the_decider_for_the_same_measurements() -> None:
    """Windows and start times are computed again here, from the list of all readings."""
    policy, state = Policy(target=4), DeciderState.empty(1)
    specs = Specs.of(min=1, max=5, target=4.0, utilization=0.7, stable_window=60.0, scale_to_zero_after=-1.0)
    readings: list[tuple[float, float, float]] = []  # from, to, requests inside replicas
    asked: list[float] = [0.0]
    starts: list[float] = []
    called = first = last = busy = decided = math.nan
    target = desired = 1
    running = 0
    compared = set()
    for now, context in recorded():
        total, queued = context.total_num_requests, context.total_queued_requests or 0.0
        asked += [called] * max(0, context.target_num_replicas - target)
        starts += [now - asked.pop(0) for _ in range(max(0, context.current_num_replicas - running))]
        del asked[max(0, context.target_num_replicas - context.current_num_replicas) :]
        target, running, called = context.target_num_replicas, context.current_num_replicas, now
        if running:
            readings.append((last if now - last <= 1.0 else now - 1.0, now, max(0.0, total - queued)))
            first, last = now if math.isnan(first) else first, now
            busy = now if total > 0.0 or math.isnan(busy) else busy
            state.at_rest[0] &= total == 0.0

        answer = policy.decide(context, now)

        if queued >= 0.5 or target > desired or not now - decided < 1.0:
            stable, panic = average(readings, now, 60.0), average(readings, now, 6.0)
            observations = Observations.of(
                current=target, ready=running, starting_seconds=sum(now - one for one in asked), stable=stable[0],
                panic=panic[0], covered=stable[1], age=now - first, crowd=total * (queued >= 0.5), idle=now - busy,
                start_time=float(np.quantile(starts[-8:], 0.75)) if starts else math.nan,
            )  # fmt: skip
            result, state = decide(specs, observations, state, now)
            desired, decided = int(result.desired[0]), now
            assert [*map(render, policy.reasons)] == [*map(render, result.reasons(0))], now
            compared.add((now, desired))
        assert answer == desired, now
    assert len(compared) > 60
    assert {1, 2, 3, 5} == {answer for _, answer in compared}


def average(readings: list[tuple[float, float, float]], now: float, window: float) -> tuple[float, float]:
    """Return the average and the covered seconds, of the whole seconds up to the one in which `now` lies."""
    since = math.ceil(now) - window
    parts = [(to - max(start, since), work) for start, to, work in readings if to > since]
    seconds = sum(part for part, _ in parts)
    return sum(part * work for part, work in parts) / seconds if parts else math.nan, seconds


def test_waiting_requests_count_at_once() -> None:
    calls = Calls(Policy(target=4))
    calls.call(idle(LOADED), 5.0)

    assert calls.call(LOADED) == 5
    assert Rule.CROWDED in {reason.rule for reason in calls.policy.reasons}


def test_requests_that_only_pass_through_a_handle_count_on_average() -> None:
    calls = Calls(Policy(target=4))
    calls.call(idle(LOADED), 5.0)

    assert calls.call(replace(LOADED, total_num_requests=3.0, total_queued_requests=0.4), 2.0) == 1


def test_between_ticks_the_answer_stays() -> None:
    calls = Calls(Policy(target=4))
    calls.call(RayContext(total_num_requests=2.0), 0.5)

    assert calls.call(RayContext(total_num_requests=400.0), 0.4) == 1
    assert calls.call(RayContext(total_num_requests=400.0), 0.4) == 5


def test_a_replica_goes_after_the_peak_is_over() -> None:
    calls = Calls(Policy(target=4))
    busy = calls.follow(LOADED, 20.0)
    assert busy.target_num_replicas == 5

    assert calls.follow(idle(busy), 200.0).target_num_replicas == 1


def test_a_tick_removes_at_most_half_of_the_replicas() -> None:
    calls = Calls(Policy(target=4))
    context = calls.follow(replace(LOADED, capacity_adjusted_max_replicas=40, total_num_requests=120.0), 20.0)
    assert context.target_num_replicas == 40
    context = idle(context)
    numbers = []

    for _ in range(2000):
        context = calls.follow(context, CALL)
        numbers.append(context.target_num_replicas)

    assert all(later >= earlier // 2 for earlier, later in zip(numbers, numbers[9:], strict=False))
    assert numbers[-1] == 1


def test_replicas_of_a_restarted_controller_stay_until_a_window_is_measured() -> None:
    calls = Calls(Policy(target=4))
    found = RayContext(4, 4, 0.0)

    assert calls.follow(found, 55.0).target_num_replicas == 4
    assert calls.follow(found, 200.0).target_num_replicas == 1


def test_a_restarted_controller_does_not_panic_in_its_first_seconds() -> None:
    fresh, restarted = Calls(Policy(target=4)), Calls(Policy(target=4))
    fresh.call(RayContext(0, 1), 1.0)
    for calls in (fresh, restarted):
        calls.call(RayContext(1, 1, 0.0), 10.0)

    answers = [calls.call(RayContext(1, 1, 12.0), 6.0) for calls in (fresh, restarted)]

    assert answers == [5, 2]
    assert Rule.PANIC in {reason.rule for reason in fresh.policy.reasons}
    assert {reason.rule for reason in restarted.policy.reasons} == {Rule.STABLE}


def test_a_restarted_controller_that_has_not_found_its_replicas_keeps_their_number() -> None:
    calls = Calls(Policy(target=4))

    assert calls.call(RayContext(0, 4, 0.0), 10.0) == 4
    assert calls.call(RayContext(4, 4, 0.0), 10.0) == 4


@pytest.mark.parametrize(("least", "most", "answer"), [(1, 3, 3), (2, 8, 6), (8, 9, 8)])
def test_the_bounds_of_the_context_hold(least: int, most: int, answer: int) -> None:
    calls = Calls(Policy(target=4))

    context = replace(LOADED, capacity_adjusted_min_replicas=least, capacity_adjusted_max_replicas=most)

    assert calls.follow(context, 10.0).target_num_replicas == answer


def test_new_bounds_hold_between_ticks() -> None:
    calls = Calls(Policy(target=4))
    calls.call(RayContext(), 1.0)

    assert calls.call(RayContext(capacity_adjusted_min_replicas=3)) == 3


@pytest.mark.parametrize(("after", "kept"), [(-1, 60.0), (5, 5.0), (600, 600.0)])
def test_the_last_replica_goes_after_its_idle_time(after: float, kept: float) -> None:
    calls = Calls(Policy(target=4, scale_to_zero_after=after))
    context = replace(LOADED, total_num_requests=1.0, total_queued_requests=0.0, capacity_adjusted_min_replicas=0)
    calls.call(RayContext(0, 0, capacity_adjusted_min_replicas=0))
    calls.call(RayContext(0, 1, capacity_adjusted_min_replicas=0), 1.0)
    context = idle(calls.follow(context, 5.0))

    assert calls.call(context, kept - 1.0) == 1
    assert calls.follow(context, 3.0).target_num_replicas == 0
    assert calls.call(RayContext(0, 0, capacity_adjusted_min_replicas=0), 100.0) == 0


def test_a_replica_that_ray_has_started_from_zero_stays_and_its_start_is_measured() -> None:
    """At zero, Ray asks no policy when a request arrives: it starts a replica."""
    calls = Calls(Policy(target=4))
    calls.call(RayContext(0, 0, capacity_adjusted_min_replicas=0), 30.0)

    calls.now += 20.0  # the start of the replica
    assert calls.call(RayContext(1, 1, 1.0, capacity_adjusted_min_replicas=0)) == 1
    calls.call(LOADED)
    calls.call(RayContext(1, 1, 1.0), 120.0)

    hold = next(reason for reason in calls.policy.reasons if reason.rule == Rule.HOLD)
    assert hold.values["start_time"] == pytest.approx(20.1)


def test_without_a_target_the_one_of_the_config_is_the_average() -> None:
    calls = Calls(Policy())
    context = RayContext(1, 1, 8.0, config=RayConfig(target_ongoing_requests=4.0))

    assert calls.follow(context, 10.0).target_num_replicas == 2


def test_a_change_is_logged_once_with_its_reasons(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(Policy(target=4))
    calls.call(RayContext(), 5.0)

    with caplog.at_level(logging.INFO, "ray.serve.knodel"):
        calls.follow(LOADED, 10.0)

    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("shop/Ranker: 1->5 replicas: ")
    assert "; requests are queued inside replicas, 16 slots are used or waited for, 2.8 per replica" in caplog.text


def test_delays_of_ray_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(Policy())

    calls.call(RayContext(config=RayConfig(upscale_delay_s=30.0, look_back_period_s=30.0)), 5.0)

    (warning,) = (record.getMessage() for record in caplog.records)
    assert "by upscale_delay_s=30, look_back_period_s=30: set upscale_delay_s=0" in warning


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": 4}, "targets: is not a keyword of knodel.ray:Policy: it has target, utilization, stable_window"),
        ({"target": 0}, "target: must be from 0.01 to 1000000 slots, not 0"),
        ({"target": "4"}, "target: must be a number, not '4'"),
        ({"target": float("nan")}, "target: must be from 0.01 to 1000000 slots, not nan"),
        ({"utilization": True}, "utilization: must be a number, not True"),
        ({"utilization": 1.5}, "utilization: must be from 0.01 to 1, not 1.5"),
        ({"stable_window": 5}, "stable_window: must be from 6 s to 1 h, not 5"),
        ({"scale_down_delay": -1}, "scale_down_delay: must be from 0 s to 1 h, not -1"),
        ({"scale_to_zero_after": 0}, "scale_to_zero_after: must be from 1 s to 7 days, or -1 for auto, not 0"),
        ({"target": 0, "stable_window": 5}, "target: must be from 0.01 to 1000000 slots, not 0; stable_window: must"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPolicy, match=re.escape(message)):
        checked(**arguments)


def test_ray_takes_the_policy_and_has_the_fields_that_it_reads() -> None:
    """In a process of its own: Ray's import has effects on the whole process."""
    names = [field.name for field in fields(RayContext)]
    done = subprocess.run(
        [sys.executable, "-c", REAL, json.dumps(names)], capture_output=True, text=True, cwd=ROOT, timeout=100
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "5", "5"]


REAL = """
import json, sys, time
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy
from knodel.ray import checked

config = AutoscalingConfig(
    min_replicas=1, max_replicas=5, upscale_delay_s=0, downscale_delay_s=0, look_back_period_s=2,
    policy=AutoscalingPolicy(**checked(target=4)),
)
del sys.modules["knodel.ray"]  # the controller has Ray's copy of the module
policy = _apply_autoscaling_config(_resolve_policy_callable(config.policy))
state = {}
for running, target, total, queued in ((1, 1, 0.0, 0.0), (1, 1, 16.0, 12.0), (5, 5, 16.0, 0.0)):
    context = AutoscalingContext(
        deployment_id=None, deployment_name="Ranker", app_name="shop", current_num_replicas=running,
        target_num_replicas=target, running_replicas=[], total_num_requests=lambda: total,
        total_queued_requests=lambda: queued, aggregated_metrics=None, raw_metrics=None,
        capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=5, policy_state=state,
        last_scale_up_time=None, last_scale_down_time=None, current_time=time.time(), config=config,
    )
    for name in json.loads(sys.argv[1]):
        getattr(context, name)
    replicas, state = policy(context)
    print(replicas)
"""
