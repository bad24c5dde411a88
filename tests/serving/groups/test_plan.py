"""The plan of a group, row by row and over all states of three workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from serving.groups.plan import LOST, STARTING, Leader, Phase, Plan, Worker, make_plan
from serving.types.lifecycle import State
from serving.types.workers import OnLoss, Workers

LEADER = Leader("m-00001-x", "10.0.0.7", start=1)
WAITING, RUNNING, READY, ENDED, DELETED = Phase
MODES: tuple[OnLoss, ...] = ("restart", "tolerate")


def workers(*phases: Phase | None, start: int = 1) -> list[Worker]:
    """Workers by rank; None: there is no Pod."""
    return [
        Worker(f"m-00001-x-w{rank}", rank, phase, start) for rank, phase in enumerate(phases, 1) if phase is not None
    ]


def plan(*phases: Phase | None, mode: OnLoss = "restart", leader: Leader = LEADER, waits: bool = False) -> Plan:
    return make_plan(Workers(len(phases), on_loss=mode), leader, workers(*phases), waits=waits)


def deleted(found: Plan) -> list[str]:
    return sorted(name[-2:] for name, _ in found.delete)


@pytest.mark.parametrize("mode", MODES)
def test_a_new_leader_gets_all_its_workers_at_once(mode: OnLoss) -> None:
    assert plan(None, None, None, mode=mode) == Plan([1, 2, 3], [], [], State("Unknown", STARTING, _ready(0)))


@pytest.mark.parametrize("leader", [Leader("m-00001-x", ""), Leader("m-00001-x", "10.0.0.7", 1, ending=True)])
def test_a_leader_without_an_address_or_at_its_end_gets_none_and_loses_none(leader: Leader) -> None:
    for phases in product((None, READY, ENDED), repeat=2):
        found = make_plan(Workers(2), leader, workers(*phases))
        assert (found.create, found.delete) == ((), ())


def test_workers_of_a_leader_that_has_ended_are_deleted_since_its_pod_may_stay() -> None:
    found = plan(READY, WAITING, DELETED, leader=Leader("m-00001-x", "10.0.0.7", 1, ended=True))
    assert (deleted(found), found.create, found.lost) == (["w1", "w2"], (), ())


@pytest.mark.parametrize("mode", MODES)
def test_workers_that_end_with_their_leaders_server_are_no_loss(mode: OnLoss) -> None:
    found = plan(READY, ENDED, None, mode=mode, leader=Leader("m-00001-x", "10.0.0.7", 1, crashed=True))
    assert (deleted(found), found.create, found.lost) == (["w2"], (), ())


def test_workers_of_a_former_start_of_the_leader_are_replaced_once_they_are_gone() -> None:
    former = [*workers(READY, DELETED, start=0), *workers(None, None, WAITING)]
    found = make_plan(Workers(3), LEADER, former)
    assert (deleted(found), found.create) == (["w1"], ())
    assert "started anew" in found.delete[0][1]


def test_a_loss_restarts_all() -> None:
    found = plan(READY, ENDED, WAITING)
    assert (deleted(found), found.create, len(found.lost)) == (["w1", "w2", "w3"], [], 1)
    assert (plan(DELETED, DELETED, None).create, plan(DELETED, None, None).delete) == ([], [])
    assert plan(None, None, None).create == [1, 2, 3]


def test_a_loss_is_tolerated_by_the_others() -> None:
    found = plan(READY, ENDED, WAITING, mode="tolerate")
    assert (deleted(found), found.create) == (["w2"], [])
    assert plan(READY, DELETED, READY, mode="tolerate").create == []  # its name is still taken
    assert plan(READY, None, READY, mode="tolerate").create == [2]


def test_a_worker_that_vanished_beside_a_running_one_is_lost_but_not_one_that_was_never_made() -> None:
    assert (deleted(plan(RUNNING, None)), plan(RUNNING, None).create) == (["w1"], [])
    assert (deleted(plan(WAITING, None)), plan(WAITING, None).create) == ([], [2])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_made_before_the_back_off_is_over(mode: OnLoss) -> None:
    assert plan(None, None, mode=mode, waits=True).create == []


ALL = [*product((None, *Phase), repeat=3)]


@pytest.mark.parametrize("mode", MODES)
def test_in_every_state_the_plan_is_sound(mode: OnLoss) -> None:
    for phases in ALL:
        found = plan(*phases, mode=mode)
        existing = {one.name for one in workers(*phases) if one.phase is not DELETED}
        names = [name for name, _ in found.delete]
        assert len(names) == len(set(names)) and set(names) <= existing, phases
        assert all(phases[rank - 1] is None for rank in found.create), phases
        assert not (found.create and names and mode == "restart"), phases
        if mode == "tolerate":
            assert all(phases[int(name[-1]) - 1] is ENDED for name in names), phases
        assert (found.state.status == "True") == all(phase is READY for phase in phases), phases


@pytest.mark.parametrize("mode", MODES)
def test_from_every_state_the_group_becomes_complete(mode: OnLoss) -> None:
    for phases in ALL:
        state = list(phases)
        for _ in range(6):
            found = plan(*state, mode=mode)
            ended = {int(name[-1]) for name, _ in found.delete}
            state = [_next(rank, phase, ended, found.create) for rank, phase in enumerate(state, 1)]
        assert state == [READY] * 3, (phases, state)


def _next(rank: int, phase: Phase | None, ended: set[int], created: Sequence[int]) -> Phase | None:
    """What a worker is a moment later, in a cluster that does what the plan says."""
    if phase is DELETED:
        return None
    if phase is None:
        return WAITING if rank in created else None
    return DELETED if rank in ended else READY if phase in (WAITING, RUNNING) else phase


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (workers(READY, READY, READY), State("True", "", "3 of 3 workers are ready")),
        (workers(READY, RUNNING, WAITING), State("Unknown", STARTING, "1 of 3 workers are ready")),
        (
            [*workers(READY), Worker("w2", 2, WAITING, 1, "Unschedulable", "0/1 nodes are available")],
            State(
                "False",
                "Unschedulable",
                "1 of 3 workers are ready: w2 is waiting: Unschedulable: 0/1 nodes are available",
            ),
        ),
        (
            [
                *workers(READY),
                Worker("w2", 2, WAITING, 1, "ErrImagePull"),
                Worker("w3", 3, ENDED, 1, "exit code 1", "no"),
            ],
            State("False", LOST, "1 of 3 workers are ready: w3 ended: exit code 1: no"),
        ),
        (
            workers(READY, READY, DELETED),
            State("False", LOST, "2 of 3 workers are ready: m-00001-x-w3 is being deleted"),
        ),
    ],
)
def test_the_state_names_the_worst_cause(given: list[Worker], state: State) -> None:
    assert make_plan(Workers(3), LEADER, given).state == state


def test_a_refused_worker_is_in_the_state() -> None:
    found = make_plan(Workers(1), LEADER, [], refusal="exceeded quota")
    said = "0 of 1 workers are ready: the cluster refuses a worker: exceeded quota"
    assert found.state == State("False", "WorkerRefused", said)


def _ready(number: int) -> str:
    return f"{number} of 3 workers are ready"
