"""The allocator: what always holds, and cases with known answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.gpu.allocator import AllocatorState, allocate, exceeds
from autoscaler.gpu.claims import AllocationSettings, Claim, Gift, Kind, Place, Rule, Shape, Tenant

GPU = "nvidia.com/gpu"
ONE = Shape(GPU, 1)


def nodes(count: int, units: int = 8, kind: str = "") -> list[Place]:
    return [Place(f"node-{number}", GPU, units, kind) for number in range(count)]


def serving(name: str, want: int, tenant: str = "team", shape: Shape = ONE, **more: object) -> Claim:
    return Claim(name, tenant, "serving", shape, want, **more)  # type: ignore[arg-type]


def training(name: str, least: int, most: int, tenant: str = "team", shape: Shape = ONE, **more: object) -> Claim:
    return Claim(name, tenant, "training", shape, most, least, **more)  # type: ignore[arg-type]


def granted(places: Sequence[Place], claims: Sequence[Claim], **more: object) -> Mapping[str, int]:
    found = allocate(places, claims, **more)  # type: ignore[arg-type]
    return {name: grant.replicas for name, grant in found.grants.items()}


# --- what always holds ---

sizes = st.sampled_from((1, 1, 1, 2, 4))


@st.composite
def worlds(draw: st.DrawFn, same_size: bool = False) -> tuple[list[Place], list[Claim]]:
    """A few nodes, and claims that hold what has room on them."""
    places = [Place(f"node-{number}", GPU, draw(st.integers(0, 6))) for number in range(draw(st.integers(1, 4)))]
    free = {place.node: place.units for place in places}
    claims = []
    for number in range(draw(st.integers(1, 6))):
        kind: Kind = draw(st.sampled_from(("serving", "pool", "training")))
        shape = Shape(GPU, 1 if same_size else draw(sizes))
        held = {}
        for node in free:
            count = draw(st.integers(0, free[node] // shape.units))
            if count:
                held[node] = count
                free[node] -= count * shape.units
        holds, want = sum(held.values()), draw(st.integers(0, 8))
        least = draw(st.integers(0, want))
        claims.append(
            Claim(
                f"claim {number}", draw(st.sampled_from("ab")), kind, shape, want, least, held,
                draw(st.sampled_from((0, 0, 5))), draw(st.sampled_from((1.0, 3.0))), draw(st.floats(0, 9)),
                running=holds >= least,
            )
        )  # fmt: skip
    return places, claims


def fits(places: Sequence[Place], pods: Sequence[int]) -> bool:
    """Whether Pods with these units fit on the nodes; by trying everything."""
    rooms = [place.units for place in places]

    def place(left: Sequence[int]) -> bool:
        if not left:
            return True
        for room in set(rooms):
            if room >= left[0]:
                rooms[rooms.index(room)] -= left[0]
                if place(left[1:]):
                    return True
                rooms[rooms.index(room - left[0])] += left[0]
        return False

    return sum(pods) <= sum(rooms) and place(sorted(pods, reverse=True))


@given(worlds())
def test_what_is_granted_fits_on_the_nodes(world: tuple[list[Place], list[Claim]]) -> None:
    places, claims = world
    found = granted(places, claims)
    pods = [claim.shape.units for claim in claims for _ in range(found[claim.name])]
    assert fits(places, pods)


@given(worlds())
def test_nobody_gets_more_than_wanted_and_held_floors_are_kept(world: tuple[list[Place], list[Claim]]) -> None:
    places, claims = world
    found = granted(places, claims)
    for claim in claims:
        assert found[claim.name] <= max(claim.want, claim.least)
    if all(claim.holds >= claim.least for claim in claims):
        assert all(found[claim.name] >= claim.least for claim in claims)


@given(worlds())
def test_a_training_job_starts_with_its_minimum_or_not_at_all(world: tuple[list[Place], list[Claim]]) -> None:
    places, claims = world
    found = granted(places, claims)
    waiting = [claim for claim in claims if claim.kind == "training" and not claim.running]
    assert all(found[claim.name] == 0 or found[claim.name] >= claim.least for claim in waiting)


@given(worlds(), st.randoms())
def test_the_order_of_claims_and_nodes_does_not_matter(
    world: tuple[list[Place], list[Claim]], chance: random.Random
) -> None:
    places, claims = world
    expected = allocate(places, claims)
    chance.shuffle(claims)
    chance.shuffle(places)
    assert allocate(places, claims) == expected


@given(worlds(same_size=True), st.integers(1, 6))
def test_with_a_further_node_no_less_is_granted(world: tuple[list[Place], list[Claim]], units: int) -> None:
    places, claims = world
    before = sum(granted(places, claims).values())
    assert sum(granted([*places, Place("further", GPU, units)], claims).values()) >= before


@given(worlds())
def test_training_has_nothing_above_its_minimum_while_serving_waits_for_it(
    world: tuple[list[Place], list[Claim]],
) -> None:
    places, claims = world
    claims = [replace(claim, shape=ONE, held={}, running=True) for claim in claims]
    found = granted(places, claims)
    if any(found[claim.name] < claim.want for claim in claims if claim.kind == "serving"):
        assert all(found[claim.name] <= claim.least for claim in claims if claim.kind != "serving")


@given(worlds(), st.lists(st.integers(0, 8), min_size=2, max_size=12))
def test_once_granted_a_steady_world_stays_as_it_is(world: tuple[list[Place], list[Claim]], ticks: list[int]) -> None:
    """Without changes nothing moves."""
    places, claims = world
    claims = [replace(claim, shape=ONE, held={}, running=True) for claim in claims]
    settings = AllocationSettings(settle=0.0, start_pause=0.0)
    state, now, last = AllocatorState(), 0.0, None
    for tick in ticks:
        now += 20.0 * tick
        found = allocate(places, claims, settings, state, now)
        state = found.state
        sizes = {name: grant.replicas for name, grant in found.grants.items()}
        assert last is None or sizes == last
        last = sizes
        claims = [replace(claim, held=placed(places, claims, sizes)[claim.name]) for claim in claims]


def placed(places: Sequence[Place], claims: Sequence[Claim], sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Put single units on nodes one after the other."""
    slots = [place.node for place in places for _ in range(place.units)]
    return {claim.name: dict(Counter(slots.pop() for _ in range(sizes[claim.name]))) for claim in claims}


# --- bands, shares, tenants ---


def test_serving_takes_what_training_has_beyond_its_minimum() -> None:
    train = training("Job team/train", 2, 8, held={"node-0": 8})
    found = allocate(nodes(1), [serving("Model team/chat", 3), train])
    chat, job = found.grants["Model team/chat"], found.grants["Job team/train"]
    assert (chat.replicas, job.replicas) == (3, 5)
    assert chat.gifts == (Gift("Job team/train", 3),)
    assert chat.message == "gets 3 of 3 replicas with nvidia.com/gpu; Job team/train gives 3"
    assert job.message == "wants 8 replicas and gets 5: 3 of 8 nvidia.com/gpu are held by others before it"
    assert found.victims == {"Job team/train": {"node-0": 3}}


def test_an_order_of_bands() -> None:
    pool = Claim("WarmPool team/fast", "team", "pool", ONE, 4)
    found = granted(
        nodes(1), [training("a", 2, 9, running=False), pool, serving("b", 3), training("c", 1, 9, held={"node-0": 1})]
    )
    assert found == {"b": 3, "WarmPool team/fast": 4, "c": 1, "a": 0}


@pytest.mark.parametrize("units", range(1, 33))
def test_tenants_at_one_to_three_are_exact_to_one_replica(units: int) -> None:
    settings = AllocationSettings({"a": Tenant(1.0), "b": Tenant(3.0)})
    found = granted(nodes(units, 1), [serving("a", 99, "a"), serving("b", 99, "b")], settings=settings)
    assert abs(found["a"] - units / 4) <= 1
    assert found["a"] + found["b"] == units


def test_shares_beyond_guarantees_are_those_of_kais_fair_share_simulator() -> None:
    """16 GPUs, quotas 4, 2, 0, weights 1, 3, 1, requests 20, 20, 1: 6, 9, 1 by fairshare-simulator of KAI 0.12."""
    tenants = {"a": Tenant(1.0, {GPU: 4}), "b": Tenant(3.0, {GPU: 2}), "c": Tenant(1.0)}
    claims = [serving("a", 20, "a"), serving("b", 20, "b"), serving("c", 1, "c")]
    assert granted(nodes(2), claims, settings=AllocationSettings(tenants)) == {"a": 6, "b": 9, "c": 1}


def test_a_guarantee_that_is_lent_is_taken_back_at_once() -> None:
    settings = AllocationSettings({"a": Tenant(guarantee={GPU: 4})})
    lent = serving("b", 8, "b", held={"node-0": 8})
    assert granted(nodes(1), [lent], settings=settings) == {"b": 8}
    assert granted(nodes(1), [lent, serving("a", 3, "a")], settings=settings) == {"a": 3, "b": 5}
    assert granted(nodes(1), [lent, training("a", 4, 8, "a", running=False)], settings=settings) == {"a": 4, "b": 4}


def test_a_limit_holds() -> None:
    settings = AllocationSettings({"a": Tenant(limit={GPU: 2})})
    found = allocate(nodes(1), [serving("a", 5, "a")], settings)
    assert found.grants["a"].replicas == 2
    assert found.grants["a"].rule is Rule.LIMIT


def test_a_low_priority_has_its_floor_only_while_a_higher_one_waits() -> None:
    low = serving("low", 8, least=1, held={"node-0": 8})
    assert granted(nodes(1), [low, serving("high", 9, priority=5)]) == {"low": 1, "high": 7}


def test_a_new_floor_takes_nothing_from_the_minimum_of_a_job_that_runs() -> None:
    train = training("train", 4, 4, held={"node-0": 4})
    assert granted(nodes(1, 4), [serving("late", 1, least=1), train]) == {"late": 0, "train": 4}


def test_expensive_units_count_more() -> None:
    places = [Place("a", GPU, 4, "H100"), Place("b", GPU, 8, "L4")]
    claims = [
        serving("h", 9, "h", Shape(GPU, 1, types=("H100", "L4"))),
        serving("l", 9, "l", Shape(GPU, 1, types=("L4",))),
    ]
    settings = AllocationSettings(prices={"H100": 4.0, "L4": 1.0})
    assert granted(places, claims, settings=settings) == {"h": 4, "l": 8}


def test_only_serving_takes_the_reserve() -> None:
    settings = AllocationSettings(reserve={GPU: 2}, settle=0.0)
    assert granted(nodes(1), [training("t", 1, 9, running=False)], settings=settings) == {"t": 6}
    assert granted(nodes(1), [serving("s", 9)], settings=settings) == {"s": 8}


# --- nodes ---


def test_a_trainer_of_five_makes_room_for_one_server_of_three() -> None:
    """Counting units would grant two: 6 of 10 units that trainers hold beyond their minimum."""
    train = training("train", 0, 2, shape=Shape(GPU, 5), held={"node-0": 1, "node-1": 1})
    assert granted(nodes(2, 5), [serving("chat", 2, shape=Shape(GPU, 3)), train]) == {"chat": 2, "train": 0}
    assert granted(nodes(2, 5), [serving("chat", 1, shape=Shape(GPU, 3)), train]) == {"chat": 1, "train": 1}


def test_a_replica_of_two_pods_needs_both() -> None:
    group = Shape(GPU, 4, pods=2)
    assert granted(nodes(3, 4), [serving("group", 2, shape=group)]) == {"group": 1}


def test_a_closed_node_takes_nothing_new_and_keeps_what_it_has() -> None:
    places = [Place("closed", GPU, 8, open=False), Place("open", GPU, 1)]
    assert granted(places, [serving("chat", 9, held={"closed": 2})]) == {"chat": 3}


def test_node_selectors_and_taints_are_heeded() -> None:
    places = [
        Place("plain", GPU, 1),
        Place("zone", GPU, 2, labels={"zone": "a"}),
        Place("tainted", GPU, 4, taints=({"key": "team", "value": "x", "effect": "NoSchedule"},)),
        Place("own", GPU, 8, taints=({"key": GPU, "effect": "NoSchedule"},)),
    ]
    tolerated = ({"key": "team", "operator": "Exists"},)
    assert granted(places, [serving("s", 99, shape=Shape(GPU, 1, node_selector={"zone": "a"}))]) == {"s": 2}
    assert granted(places, [serving("s", 99)]) == {"s": 11}
    assert granted(places, [serving("s", 99, shape=Shape(GPU, 1, tolerations=tolerated))]) == {"s": 15}


def test_a_type_that_no_node_has() -> None:
    found = allocate(nodes(1, kind="L4"), [serving("s", 1, shape=Shape(GPU, 1, types=("H100",)))])
    assert found.grants["s"].rule is Rule.NONE_FITS
    assert found.grants["s"].message == (
        "wants 1 replica and gets 0: no node has the nvidia.com/gpu that one Pod takes"
    )


def test_an_unknown_resource_is_not_limited() -> None:
    assert granted(nodes(1), [serving("s", 99, shape=Shape("example.com/gpu", 1))]) == {"s": 99}


def test_without_scarcity_nothing_has_to_be_decided() -> None:
    assert not exceeds(nodes(1), [serving("a", 4), serving("b", 4)])
    assert exceeds(nodes(1), [serving("a", 4), serving("b", 5)])
    assert not exceeds(nodes(1), [serving("a", 4), serving("b", 5, shape=Shape("example.com/gpu", 1))])


# --- gangs and time ---


def test_the_oldest_gang_starts_first_and_may_be_passed_for_a_while() -> None:
    old = training("old", 6, 6, since=0.0, running=False)
    young = training("young", 3, 3, since=9.0, running=False)
    assert granted(nodes(1), [old, young]) == {"old": 6, "young": 0}
    assert granted(nodes(1, 4), [old, young], now=20.0) == {"old": 0, "young": 3}
    assert granted(nodes(1, 4), [old, young], now=500.0) == {"old": 0, "young": 0}  # it has waited for too long


def test_a_gang_that_was_admitted_holds_its_minimum_before_its_pods_run() -> None:
    gang = training("gang", 6, 6, running=False)
    admitted = allocate(nodes(1), [gang])
    older = training("older", 6, 6, since=-9.0, running=False)
    found = allocate(nodes(1), [gang, older], state=admitted.state, now=1.0)
    assert found.grants["gang"].replicas == 6


def test_training_grows_only_into_units_that_were_free_for_a_while() -> None:
    chat, train = serving("chat", 6, held={"node-0": 6}), training("train", 2, 8, held={"node-0": 2})
    state = allocate(nodes(1), [chat, train], now=-60.0).state
    idle = replace(chat, want=0, held={})
    sizes = []
    for now in (1.0, 9.0, 10.9, 11.1):
        found = allocate(nodes(1), [idle, train], state=state, now=now)
        state = found.state
        sizes.append(found.grants["train"].replicas)
    assert sizes == [2, 2, 2, 8]
    assert found.grants["train"].rule is Rule.ALL


def test_after_a_reclaim_training_pauses() -> None:
    train = training("train", 2, 8, held={"node-0": 8})
    state = allocate(nodes(1), [train]).state
    state = allocate(nodes(1), [train, serving("chat", 4)], state=state, now=100.0).state
    smaller = replace(train, held={"node-0": 4})
    settings = AllocationSettings(settle=0.0, start_pause=30.0)
    assert granted(nodes(1), [smaller], settings=settings, state=state, now=120.0) == {"train": 4}
    assert granted(nodes(1), [smaller], settings=settings, state=state, now=131.0) == {"train": 8}


def test_a_job_does_not_keep_workers_that_end() -> None:
    train = training("train", 2, 8, held={"node-0": 8})
    state = allocate(nodes(1), [train]).state
    state = allocate(nodes(1), [train, serving("chat", 4)], state=state, now=100.0).state
    smaller, fewer = replace(train, leaving={"node-0": 4}), serving("chat", 3)
    assert granted(nodes(1), [smaller, fewer], state=state, now=101.0) == {"train": 4, "chat": 3}


def test_units_that_pass_from_one_job_to_another_stay_there_while_pods_end_and_start() -> None:
    first, second = training("first", 1, 8, held={"node-0": 7}), training("second", 1, 8, held={"node-0": 1})
    state = allocate(nodes(1), [first, second], now=0.0).state
    for now in (10.0, 11.0, 12.0):
        found = allocate(nodes(1), [first, second], state=state, now=now)
        state = found.state
        assert {name: grant.replicas for name, grant in found.grants.items()} == {"first": 4, "second": 4}


def test_growth_is_not_taken_for_growth_within_the_minimum_runtime() -> None:
    settings = AllocationSettings(settle=0.0, start_pause=0.0)
    first = training("first", 1, 8, held={"node-0": 1})
    state = allocate(nodes(1), [first], settings).state
    grown, second = replace(first, held={"node-0": 8}), training("second", 1, 8, since=1.0, running=False)
    state = allocate(nodes(1), [grown, second], settings, state, 30.0).state  # its minimum is not growth
    grown, second = replace(first, held={"node-0": 7}), replace(second, held={"node-0": 1}, running=True)
    assert granted(nodes(1), [grown, second], settings=settings, state=state, now=59.0) == {"first": 7, "second": 1}
    assert granted(nodes(1), [grown, second], settings=settings, state=state, now=61.0) == {"first": 4, "second": 4}
