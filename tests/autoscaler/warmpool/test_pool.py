"""The plan of a pool, as a pure function."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from autoscaler.warmpool.creation_backoff import LONGEST_WAIT, CreationBackoff, next_backoff, wait_after
from autoscaler.warmpool.pool import Fault, PoolMember, PoolObservation, PoolPlan, PoolSeed, affordable, plan
from autoscaler.warmpool.reasons import PoolReason, PoolRule
from autoscaler.warmpool.sizing.policy import Sizing
from autoscaler.warmpool.spec import read_spec, requests_of
from autoscaler.warmpool.status import make_status, status_differs

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEED = PoolSeed("seed", "c1", Decimal("0.5"), Decimal(2**28), serves=True)
REFUSED = CreationBackoff(PoolRule.REFUSED, {"what": "quota"}, 1, NOW, until=100.0)
FAILING = CreationBackoff(PoolRule.FAILING, {"pod": "m0", "what": "ended"}, 1, NOW, until=100.0)
BURST = 4


def member(name: str, age: float = 60.0, **fields: Any) -> PoolMember:
    """Return a free, ready member."""
    known: dict[str, Any] = {"pool_class": "c1", "ready": True, "claimed": False, **fields}
    return PoolMember(name=name, created=NOW - timedelta(seconds=age), **known)


def look(size: int, members: Sequence[PoolMember] = (), spec: Any = None, **fields: Any) -> PoolObservation:
    sizing = Sizing(size, (PoolReason(PoolRule.FIXED, {"size": size}),))
    known: dict[str, Any] = {"seed": SEED, "unseen": 0, "backoff": None, "burst": BURST, **fields}
    return PoolObservation(read_spec({"spec": {"maxAge": "1h", **(spec or {})}}), sizing, members=members, **known)


def planned(seen: PoolObservation, monotonic: float = 0.0) -> PoolPlan:
    return plan(seen, NOW, monotonic)


def deleted(made: PoolPlan) -> list[tuple[str, Fault]]:
    return [(gone.name, fault) for gone, fault in made.delete]


def fleet(number: int, **fields: Any) -> list[PoolMember]:
    """Return `number` members, the youngest first."""
    return [member(f"m{index}", age=60.0 * (index + 1), **fields) for index in range(number)]


@pytest.mark.parametrize(
    ("members", "fields", "expected"),
    [
        ([], {}, 3),
        (fleet(2), {}, 1),
        (fleet(3), {}, 0),
        ([], {"unseen": 2}, 1),
        ([], {"burst": 2}, 2),
        (fleet(2, ready=False), {"burst": 2}, 0),
        (fleet(3, claimed=True), {}, 3),
        ([], {"seed": None}, 0),
        ([], {"seed": replace(SEED, serves=False)}, 0),
        ([], {"backoff": FAILING}, 0),
    ],
)
def test_what_is_missing_is_created_as_far_as_it_may_be(
    members: list[PoolMember], fields: dict[str, Any], expected: int
) -> None:
    assert planned(look(3, members, **fields)).create == expected


def test_after_a_pause_one_member_is_tried() -> None:
    assert planned(look(3, backoff=FAILING), monotonic=100.0).create == 1
    assert planned(look(3, fleet(1, ready=False), backoff=FAILING), monotonic=100.0).create == 0


@pytest.mark.parametrize("fault", [Fault.ENDED, Fault.RESTARTED, Fault.TOKEN])
def test_a_faulty_member_goes_and_another_one_comes(fault: Fault) -> None:
    made = planned(look(2, [member("bad", fault=fault), member("good")]))
    assert deleted(made) == [("bad", fault)]
    assert (made.create, made.ready) == (1, 1)


def test_a_member_of_another_class_goes_unless_there_is_none_to_copy() -> None:
    members = [member("old", pool_class="c0"), member("new")]
    assert deleted(planned(look(2, members))) == [("old", Fault.CLASS)]
    assert deleted(planned(look(2, members, seed=None))) == []


def test_claimed_members_are_left_alone_whatever_is_wrong_with_them() -> None:
    members = [
        member("a", claimed=True, fault=Fault.ENDED),
        member("b", claimed=True, pool_class="c0"),
        member("c", claimed=True, age=1e6),
    ]
    made = planned(look(0, members))
    assert (made.delete, made.claimed) == ((), 3)


def test_what_is_too_many_goes_in_order_of_its_worth() -> None:
    members = [
        member("young", 10), member("grown", 100), member("old", 4_000), member("older", 5_000),
        member("starting", 20, ready=False), member("stuck", 300, ready=False),
    ]  # fmt: skip
    order = [name for name, _ in deleted(planned(look(0, members)))]
    assert order == ["starting", "stuck", "older", "old", "young", "grown"]


def test_nothing_is_deleted_as_too_many_while_a_creation_has_not_shown() -> None:
    assert planned(look(1, fleet(2), unseen=1)).delete == ()


@pytest.mark.parametrize(
    ("members", "fields", "create", "delete"),
    [
        ([member("old", 4_000), member("a")], {}, 1, []),
        ([member("old", 4_000), member("a"), member("b", ready=False)], {}, 0, []),
        ([member("old", 4_000), member("a"), member("b")], {}, 0, ["old"]),
        ([member("old", 4_000), member("older", 5_000), member("b")], {}, 0, ["older"]),
        ([member("old", 4_000, ready=False), member("a")], {}, 1, ["old"]),
        ([member("old", 4_000), member("a")], {"seed": None}, 0, []),
        ([member("old", 4_000), member("a")], {"spec": {"budget": {"cpu": "1"}}}, 0, ["old"]),
        ([member("old", 4_000), member("a", ready=False)], {"spec": {"budget": {"cpu": "1"}}}, 0, []),
        ([member("old", 4_000), member("a")], {"backoff": REFUSED}, 0, ["old"]),
        ([member("old", 4_000), member("a")], {"backoff": FAILING}, 0, []),
    ],
)
def test_an_old_member_goes_when_another_one_is_ready_or_there_is_no_room(
    members: list[PoolMember], fields: dict[str, Any], create: int, delete: list[str]
) -> None:
    made = planned(look(2, members, **fields))
    assert (made.create, [name for name, _ in deleted(made)]) == (create, delete)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [({}, None), ({"cpu": "1.6"}, 3), ({"memory": "1Gi"}, 4), ({"cpu": "1.6", "memory": "512Mi"}, 2), ({"cpu": 0}, 0)],
)
def test_the_budget_bounds_the_size(budget: dict[str, Any], expected: int | None) -> None:
    spec = read_spec({"spec": {"budget": budget}})
    assert affordable(spec, SEED) == expected
    assert planned(look(9, spec={"budget": budget})).size == (9 if expected is None else expected)


def test_a_member_asks_for_what_all_its_containers_ask_for() -> None:
    limits, requests = {"cpu": "2", "memory": "1Gi"}, {"cpu": "500m"}
    containers = [{"resources": {"limits": limits, "requests": requests}}, {"resources": {"limits": {"cpu": 1}}}, {}]
    assert requests_of({"containers": containers}) == (Decimal("1.5"), Decimal(2**30))


def test_pauses_double_up_to_a_minute_and_a_batch_counts_once() -> None:
    pause, at, waits = None, 0.0, []
    for _ in range(9):
        pause = next_backoff(pause, PoolRule.FAILING, {"pod": "m", "what": "ended"}, NOW, at)
        assert next_backoff(pause, PoolRule.FAILING, {}, NOW, at + 0.5) is pause
        waits.append(pause.until - at)
        at = pause.until
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert wait_after(10_000) == LONGEST_WAIT


@pytest.mark.parametrize(
    ("seen", "status", "reason"),
    [
        (look(2, fleet(2)), "True", ""),
        (look(0), "True", ""),
        (look(2, fleet(1)), "Unknown", "Starting"),
        (look(2, seed=None), "False", "NoSeed"),
        (look(2, fleet(2), seed=None), "False", "NoSeed"),
        (look(2, seed=replace(SEED, serves=False)), "False", "NoPoolServer"),
        (look(2, fleet(1), backoff=REFUSED), "False", "Refused"),
        (look(2, fleet(2), backoff=FAILING), "True", ""),
    ],
)
def test_the_condition_ready_says_whether_the_pool_is_full_and_what_keeps_it(
    seen: PoolObservation, status: str, reason: str
) -> None:
    (condition,) = make_status({"metadata": {"name": "p"}}, planned(seen), NOW)["conditions"]
    assert (condition["status"], condition.get("reason", "")) == (status, reason)


def test_a_status_that_says_the_same_is_not_written() -> None:
    wanted = make_status({"metadata": {"name": "p"}}, planned(look(2, fleet(1))), NOW)
    stored = {"metadata": {"name": "p"}, "status": {**wanted, "seed": {"ready": True}}}
    later = make_status(stored, planned(look(2, fleet(1))), NOW + timedelta(hours=1))
    assert not status_differs(stored, later)
    assert status_differs(stored, make_status(stored, planned(look(2, fleet(2))), NOW))


def test_random_pools_end_where_nothing_is_to_be_done() -> None:
    source = random.Random(3)
    for _ in range(300):
        size = source.randrange(0, 7)
        members = [random_member(source, f"m{number}") for number in range(source.randrange(0, 9))]
        claimed = {each.name for each in members if each.claimed}
        for number in range(60):
            made = planned(look(size, members))
            assert made.create <= BURST
            assert not claimed & {gone.name for gone, _ in made.delete}
            if not made.create and not made.delete and not made.starting:
                break
            gone = {each.name for each, _ in made.delete}
            members = [replace(each, ready=True) for each in members if each.name not in gone]
            members += [member(f"n{number}-{index}", 0.0, ready=False) for index in range(made.create)]
            assert sum(not each.claimed for each in members) <= max(size + 1, 9)
        free = [each for each in members if not each.claimed]
        assert len(free) == size
        assert all(each.fault is None and each.pool_class == "c1" for each in free)
        assert all((NOW - each.created).total_seconds() < 3_600 for each in free)


def random_member(source: random.Random, name: str) -> PoolMember:
    return member(
        name,
        source.choice([0.0, 30.0, 4_000.0]),
        ready=source.random() < 0.7,
        claimed=source.random() < 0.3,
        pool_class=source.choice(["c0", "c1", "c1", "c1"]),
        fault=source.choice([None, None, None, Fault.ENDED, Fault.TOKEN]),
    )
