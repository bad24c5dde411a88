"""Row numbers of revisions, and many revisions at once."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.config import AutoscalerSettings
from autoscaler.metrics.collector import RevisionReading
from autoscaler.scaling.measurements import Measurements
from autoscaler.scaling.multi_scaler import MultiScaler
from autoscaler.scaling.row_index import FIRST_ROWS, RowIndex, compact
from clusters.base.objects import Key
from tests.autoscaler.test_timelines import SPEC
from tests.autoscaler.world import Activator

KEYS = [Key("default", f"m-{number}") for number in range(FIRST_ROWS + 10)]


def test_keys_have_rows_side_by_side_and_free_ones_are_taken_again() -> None:
    roster = RowIndex()
    assert [roster.add(key) for key in KEYS] == list(range(len(KEYS)))
    assert roster.rows >= len(KEYS)
    assert roster.remove(KEYS[3]) == 3
    assert roster.remove(KEYS[3]) is None
    assert KEYS[3] not in roster and KEYS[4] in roster
    assert roster.numbers(KEYS[2:5]).tolist() == [2, 4]
    assert roster.keys(np.array([2, 3, 4])) == [KEYS[2], KEYS[4]]
    assert roster.add(Key("default", "other")) == 3


@pytest.mark.parametrize(
    ("numbers", "rows"),
    [
        ([4, 5, 6], slice(4, 7)),
        ([7], slice(7, 8)),
        ([4, 6], None),
        ([5, 4], None),
        ([4, 4, 6], None),
        ([], slice(0, 0)),
    ],
)
def test_rows_side_by_side_are_a_slice(numbers: list[int], rows: slice | None) -> None:
    found = compact(np.array(numbers, np.int64))
    assert found == rows if rows is not None else list(np.arange(9)[found]) == numbers


def test_starting_replicas_grow_older_and_those_that_became_ready_take_their_share_along() -> None:
    measured = Measurements.empty(1)
    measured.count(0, 4, 0, 10.0)
    measured.count(0, 4, 0, 13.0)
    assert measured.starting_seconds[0] == 12.0
    measured.count(0, 4, 3, 15.0)
    assert measured.starting_seconds[0] == 5.0


def fleet_of(activator: Activator, count: int) -> MultiScaler:
    fleet = MultiScaler(AutoscalerSettings(), activator.load)
    for key in KEYS[:count]:
        fleet.set_spec(key, {**SPEC, "max": 20})
        fleet.set_replicas(key, 1, 1, 0.0)
    return fleet


def told(work: float) -> RevisionReading:
    return RevisionReading(work, 0.0, work, work, busy=work > 0, complete=True)


def test_revisions_at_zero_are_active_only_while_requests_wait_for_them() -> None:
    activator = Activator()
    fleet = fleet_of(activator, 4)
    for key in KEYS[:4]:
        fleet.set_replicas(key, 0, 0, 1.0)
    assert fleet.active() == [] and not fleet.any_active()
    activator.holds(queued=1, key=KEYS[2])
    assert fleet.active() == [KEYS[2]] and fleet.any_active()
    fleet.set_replicas(KEYS[0], 1, 0, 2.0)
    assert fleet.active() == [KEYS[0], KEYS[2]]


def test_many_are_decided_as_each_alone_whatever_rows_they_have() -> None:
    together, alone = fleet_of(Activator(), 20), fleet_of(Activator(), 20)
    some = [key for number, key in enumerate(KEYS[:20]) if number % 3]
    for second in range(1, 90):
        now = float(second)
        readings = {key: told(0.7 * KEYS.index(key)) for key in some}
        together.observe(readings, some, now)
        changes = {change.key: change for change in together.decide(some, now)}
        for key, reading in readings.items():
            alone.observe({key: reading}, [key], now)
            assert alone.decide([key], now) == ([changes[key]] if key in changes else [])
    assert {together.desired(key) for key in some} >= {1, 5, 7}
    assert together.current_works(some, 89.0) == [together.current_work(key, 89.0) for key in some]
    assert together.current_works(some, 89.0) == pytest.approx([0.7 * KEYS.index(key) for key in some])


def test_a_key_that_comes_again_begins_anew() -> None:
    fleet = fleet_of(Activator(), 1)
    fleet.observe({KEYS[0]: told(40.0)}, [KEYS[0]], 1.0)
    assert [change.desired for change in fleet.decide([KEYS[0]], 1.0)] == [20]
    fleet.remove(KEYS[0])
    fleet.set_spec(KEYS[0], SPEC)
    assert fleet.desired(KEYS[0]) == -1 and fleet.current_work(KEYS[0], 1.0) == 0.0
    assert fleet.active() == []
