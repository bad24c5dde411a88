"""Properties of the decider for arbitrary inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.scaling.decider import decide
from autoscaler.scaling.reasons import render
from autoscaler.scaling.table import AUTO, NAN, NEVER, PEAKS, UNLIMITED, DeciderState, Observations, Specs
from tests.autoscaler.reference import before_of, decide_all, row_of

counts = st.integers(0, 40)
works = st.floats(0, 500) | st.just(NAN)
seconds = st.floats(0, 200)


@st.composite
def specs_rows(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 10))
    return {
        "min": least,
        "max": draw(st.integers(max(1, least), 50)),
        "initial": draw(st.integers(0, 5)),
        "activation": draw(st.integers(1, 5)),
        "target": draw(st.floats(0.1, 100)),
        "utilization": draw(st.floats(0.1, 1)),
        "scale_to_zero_after": draw(st.just(AUTO) | st.floats(1, 120)),
        "scale_down_delay": draw(st.just(0.0) | st.floats(0, 120)),
        "stable_window": draw(st.floats(6, 120)),
        "latency_objective": draw(st.just(0.0) | st.floats(0.01, 10)),
        "reachable": draw(st.booleans()),
        "initialized": draw(st.booleans()),
        "expired": draw(st.booleans()),
    }


observed_rows = st.fixed_dictionaries(
    {
        "current": counts,
        "ready": counts,
        "starting_seconds": seconds,
        "stable": works,
        "panic": works,
        "unknown": st.floats(0, 50),
        "age": seconds | st.just(NAN),
        "covered": seconds,
        "queued": st.integers(0, 300).map(float),
        "crowd": st.integers(0, 300).map(float),
        "active": st.integers(0, 30).map(float),
        "idle": seconds | st.just(NAN),
        "service_time": st.floats(1e-3, 60) | st.just(NAN),
        "start_time": st.floats(0.1, 200) | st.just(NAN),
        "latency": st.floats(0, 30) | st.just(NAN),
        "answers": st.integers(0, 60).map(float),
        "adopted": st.booleans(),
        "granted": st.integers(0, 5) | st.just(UNLIMITED),
    }
)
state_rows = st.fixed_dictionaries(
    {
        "panic_until": st.floats(0, 300) | st.just(NEVER),
        "panic_peak": counts,
        "below_since": st.floats(0, 100) | st.just(NAN),
        "below_peak": counts,
        "at_rest": st.booleans(),
        "starting_since": st.floats(0, 100) | st.just(NAN),
        "slow_until": st.floats(0, 300) | st.just(NEVER),
        "hold_width": st.floats(1, 60) | st.just(NAN),
        "hold_began": st.floats(0, 100),
        "hold_now": counts,
        "hold_before": counts,
        "hold_slot": st.integers(0, PEAKS - 1),
        "peaks": st.lists(counts, min_size=PEAKS, max_size=PEAKS),
    }
)
tables = st.lists(st.tuples(specs_rows(), observed_rows, state_rows), min_size=1, max_size=8)
Rows = list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]


def columns(rows: Rows, part: int) -> dict[str, Any]:
    return {name: np.array([row[part][name] for row in rows]).T for name in rows[0][part]}


def tables_of(rows: Rows) -> tuple[Specs, Observations, DeciderState]:
    return Specs.of(**columns(rows, 0)), Observations.of(**columns(rows, 1)), DeciderState.of(**columns(rows, 2))


@settings(deadline=None, max_examples=200)
@given(tables)
def test_the_arrays_agree_with_the_same_rules_in_plain_python(rows: Rows) -> None:
    specs, seen, state = tables_of(rows)
    decisions, kept = decide(specs, seen, state, 100.0)
    for row, (replicas, memory) in enumerate(decide_all(specs, seen, state, 100.0)):
        assert decisions.desired[row] == replicas
        assert kept.panic_until[row] == memory.panic_until
        assert kept.panic_peak[row] == memory.panic_peak
        assert kept.below_since[row] == memory.below_since or math.isnan(memory.below_since)
        assert kept.below_peak[row] == memory.below_peak
        np.testing.assert_equal(kept.starting_since[row], memory.starting_since)
        assert kept.slow_until[row] == memory.slow_until
        assert kept.hold_width[row] == memory.hold_width
        assert kept.hold_began[row] == memory.hold_began
        assert kept.hold_now[row] == memory.hold_now
        assert before_of(row_of(kept, row)) == memory.before


@pytest.mark.fault("A3")
@settings(deadline=None)
@given(tables)
def test_the_result_is_an_integer_within_the_bounds(rows: Rows) -> None:
    specs, seen, state = tables_of(rows)
    decisions, _ = decide(specs, seen, state, 100.0)
    assert decisions.desired.dtype == np.int64
    assert (decisions.desired >= 0).all() and (decisions.desired <= specs.max).all()
    held = specs.reachable & specs.initialized & ~specs.expired
    assert (decisions.desired[held] >= np.minimum(specs.min[held], seen.granted[held])).all()


@settings(deadline=None)
@given(tables)
def test_a_revision_is_decided_the_same_alone_as_among_others(rows: Rows) -> None:
    specs, seen, state = tables_of(rows)
    together, _ = decide(specs, seen, state, 100.0)
    first = np.array([0])
    alone, _ = decide(specs.take(first), seen.take(first), state.take(first), 100.0)
    assert alone.desired[0] == together.desired[0]
    assert list(map(render, alone.reasons(0))) == list(map(render, together.reasons(0)))


@settings(deadline=None)
@given(tables)
def test_the_reasons_lead_from_the_present_count_to_the_new_one(rows: Rows) -> None:
    specs, seen, state = tables_of(rows)
    decisions, _ = decide(specs, seen, state, 100.0)
    for row in range(len(specs)):
        count = int(seen.current[row])
        for reason in decisions.reasons(row):
            assert reason.before == count and render(reason)
            count = reason.after
        assert count == decisions.desired[row]


@settings(deadline=None)
@given(tables)
def test_nothing_given_is_changed(rows: Rows) -> None:
    specs, seen, state = tables_of(rows)
    arrays = [getattr(table, name) for table in (specs, seen, state) for name in table.names()]
    copies = [array.copy() for array in arrays]
    decide(specs, seen, state, 100.0)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
