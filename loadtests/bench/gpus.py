"""Benchmark of the allocator of GPUs: claims that want four times what there is.

The same run measures a floor, the heap operations of progressive filling alone. The allocator also keeps the nodes, the
shares of tenants and the reasons.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from autoscaler.gpu.allocator import allocate
from autoscaler.gpu.claims import Claim, Kind, Place, Shape
from loadtests.bench.figure import Figure

GPU: Final = "nvidia.com/gpu"
SIZES: Final = {500: 2.0, 2_000: 30.0}  # claims → maximum ms of an allocation
MOST_OVER_FLOOR: Final = 40.0
ROUNDS: Final = 40
TENANTS: Final = 20
SEED: Final = 1


def contended(count: int) -> tuple[list[Place], list[Claim]]:
    """Return nodes with 8 GPUs, and claims of Models, pools and elastic jobs that hold some of them."""
    some = random.Random(SEED)
    places = [Place(f"node-{number}", GPU, 8) for number in range(max(1, count // 4))]
    free = {place.node: place.units for place in places}
    claims = []
    for number in range(count):
        kinds: tuple[Kind, ...] = ("serving", "pool", "training")
        [kind] = some.choices(kinds, [6, 1, 3])
        shape = Shape(GPU, some.choice([1, 1, 1, 2, 4]))
        want = some.randint(4, 16) if kind == "training" else some.randint(1, 6)
        held: dict[str, int] = {}
        for _ in range(some.randint(0, 2)):
            node = some.choice(places).node
            if free[node] >= shape.units:
                free[node] -= shape.units
                held[node] = held.get(node, 0) + 1
        tenant = f"team-{number % TENANTS}"
        claims.append(
            Claim(
                f"{kind} {tenant}/{number}", tenant, kind, shape, want, some.randint(0, 1), held,
                some.choice([0, 0, 5]), some.choice([1.0, 2.0]), float(number),
            )
        )  # fmt: skip
    return places, claims


def allocator() -> Iterator[Figure]:
    """Yield the CPU time of an allocation for 500 and for 2 000 claims, and how many times the floor it is.

    Both are the least of several rounds, alternately, so that other programs on the machine count less.
    """
    for count, aim in SIZES.items():
        places, claims = contended(count)
        turns = sum(grant.replicas for grant in allocate(places, claims).grants.values())
        took, floor = [], []
        for _ in range(ROUNDS):
            took.append(_timed(partial(allocate, places, claims)))
            floor.append(_timed(partial(fill_by_turns, count, turns)))
        yield Figure(f"GPUs for {count} claims, least of {ROUNDS}", min(took), "ms", aim)
        yield Figure("  floor: a heap of the claims, one turn for each replica", min(floor), "ms")
        yield Figure(f"GPUs for {count} claims, times the floor", min(took) / min(floor), "", MOST_OVER_FLOOR)


def fill_by_turns(claims: int, turns: int) -> list[int]:
    """Give replicas to the claim with the least share, and nothing else."""
    granted = [0] * claims
    queue = [(0.0, number) for number in range(claims)]
    for _ in range(turns):
        share, number = queue[0]
        granted[number] += 1
        heapq.heapreplace(queue, (share + 1.0, number))
    return granted


def _timed(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return (time.process_time() - began) * 1_000
