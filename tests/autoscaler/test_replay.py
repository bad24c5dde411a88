"""Replays of decisions from their stored JSON: the same decision on random inputs, others by other policies."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config import DecisionSettings
from autoscaler.scaling.decider import STAGES, decide
from autoscaler.scaling.replay import COLUMNS, INPUTS_ANNOTATION, NoReplay, inputs_of, replay
from autoscaler.scaling.table import DeciderState, Observations, Specs
from autoscaler.types import Policy, read_entries
from clusters.embedded.cluster import EmbeddedCluster
from tests.autoscaler.world import World, running
from tests.support.clock import SteppedClock

WORK = st.one_of(st.just(float("nan")), st.floats(0.0, 200.0))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Specs, Observations]:
    least = draw(st.integers(0, 3))
    specs = Specs.of(min=least, max=least + draw(st.integers(1, 50)), target=draw(st.floats(0.5, 8.0)),
                     scale_to_zero_after=draw(st.sampled_from([-1.0, 5.0, 60.0])))  # fmt: skip
    current = draw(st.integers(0, 20))
    seen = Observations.of(current=current, ready=draw(st.integers(0, current)), stable=draw(WORK), panic=draw(WORK),
                           queued=float(draw(st.integers(0, 50))), age=draw(st.floats(0.0, 200.0)),
                           covered=draw(st.floats(0.0, 60.0)), idle=draw(WORK), start_time=draw(WORK))  # fmt: skip
    return specs, seen


@given(st.lists(situations(), min_size=2, max_size=6), st.floats(0.0, 0.3))
def test_a_decision_is_the_same_again_after_any_decisions_before_it(
    timeline: list[tuple[Specs, Observations]], tolerance: float
) -> None:
    settings, state = DecisionSettings(tolerance=tolerance), DeciderState.empty(1)
    for number, (specs, seen) in enumerate(timeline):
        now = 1_000.0 + 7.3 * number
        inputs = json.loads(json.dumps(inputs_of(specs, seen, state, 0, now, settings), allow_nan=False))
        decisions, state = decide(specs, seen, state, now, settings)
        again = replay(inputs)
        assert again.desired == int(decisions.desired[0])
        told = [(step.rule, step.before, step.after) for step in again.steps if step.message]
        assert told == [(one.rule.value, one.before, one.after) for one in decisions.reasons(0)]


def test_every_stage_is_told_in_order_with_the_number_that_it_left() -> None:
    seen = Observations.of(current=1, ready=1, queued=30.0, panic=4.0)
    inputs = inputs_of(Specs.of(max=8, target=4.0), seen, DeciderState.empty(1), 0, 100.0, DecisionSettings())
    steps = replay(inputs).steps
    assert [step.rule for step in steps] == [rule.value for rule, _ in STAGES]
    assert all(before.after == after.before for before, after in itertools.pairwise(steps))
    waiting = next(step for step in steps if step.rule == "Waiting")
    assert waiting.after > waiting.before == 1
    assert "30 requests wait" in waiting.message


def test_one_request_that_waits_is_one() -> None:
    seen = Observations.of(current=1, ready=1, queued=1.0, panic=4.0)
    inputs = inputs_of(Specs.of(max=8, target=4.0), seen, DeciderState.empty(1), 0, 100.0, DecisionSettings())
    waiting = next(step for step in replay(inputs).steps if step.rule == "Waiting")
    assert waiting.message.startswith("1 request waits (")


def test_another_policy_comes_to_another_number() -> None:
    seen = Observations.of(current=1, ready=1, stable=16.0, panic=16.0, age=100.0, covered=60.0)
    inputs = inputs_of(Specs.of(max=20, target=2.0), seen, DeciderState.empty(1), 0, 100.0, DecisionSettings())
    assert replay(inputs).desired == 8
    assert replay(inputs, {"target": 4.0}).desired == 4
    assert replay(inputs, {"max": 3}).desired == 3


def test_the_row_that_is_kept_is_that_of_the_revision_among_others() -> None:
    specs, seen = Specs.of(max=[4, 9]), Observations.of(current=[1, 2], ready=[1, 2], queued=[0.0, 50.0])
    inputs = inputs_of(specs, seen, DeciderState.empty(2), 1, 10.0, DecisionSettings())
    assert (inputs["specs"], inputs["seen"]["current"]) == ({"max": 9}, 2)
    assert replay(inputs).desired == int(decide(specs, seen, DeciderState.empty(2), 10.0)[0].desired[1])


def test_what_is_kept_of_a_decision_is_small() -> None:
    seen = Observations.of(**{name: np.pi for name in Observations.names() if name != "adopted"})
    state = DeciderState.of(**dict.fromkeys(DeciderState.names(), 7))
    specs = Specs.of(min=1, max=900, target=np.pi, utilization=0.7, scale_to_zero_after=-1.0)
    assert len(json.dumps(inputs_of(specs, seen, state, 0, 1e5 + np.pi, DecisionSettings()))) < 1_500


@pytest.mark.parametrize(
    "inputs",
    [{}, {"now": 1.0}, {"now": "x", "specs": {}, "seen": {}, "state": {}, "settings": {}},
     {"now": 1.0, "specs": {"max": "many"}, "seen": {}, "state": {}, "settings": {}},
     {"now": 1.0, "specs": 7, "seen": {}, "state": {}, "settings": {}}],
)  # fmt: skip
def test_what_cannot_be_understood_is_told(inputs: Any) -> None:
    with pytest.raises(NoReplay, match="are unreadable"):
        replay(inputs)


def test_columns_and_settings_of_another_version_are_left_out() -> None:
    rows = {"specs": {"max": 4, "colour": 1}, "seen": {"current": 2, "ready": 2}, "state": {"mood": "nan"}}
    inputs = {"now": 1.0, **rows, "settings": {"courage": 2.0}}
    assert replay(inputs).desired == 2


def test_every_field_that_a_replay_may_change_has_a_column() -> None:
    assert set(COLUMNS.values()) <= set(Specs.names())


@pytest.fixture
async def world(cluster: EmbeddedCluster) -> AsyncIterator[World]:
    async with running(World(cluster, SteppedClock())) as world:
        yield world


async def test_decisions_of_a_running_autoscaler_can_be_replayed_from_its_podautoscaler(world: World) -> None:
    await world.create_revision(Policy(scale_target=1.0))
    await world.until(world.mode, "Proxy")
    pod = await world.start_pod()
    await world.until(world.mode, "Serve")
    world.replicas.work(pod, 3.0)
    await world.pass_time(5.0)
    world.activator.holds(queued=4)

    async def kept() -> bool:
        return len(read_entries(await world.pod_autoscaler(), INPUTS_ANNOTATION)) >= 1

    await world.until(kept, True)
    for entry in read_entries(await world.pod_autoscaler(), INPUTS_ANNOTATION):
        assert replay(entry).desired == entry["to"]
