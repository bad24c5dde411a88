"""Kueue's performance scenario: 5 cohorts of 6 queues, and 15 000 workloads of three sizes.

A queue has a quota of 20 units and may borrow 100. It gets 350 small workloads (1 unit, 200 ms, one each 100 ms), 100
medium ones (5 units, 500 ms, each 500 ms) and 50 large ones (20 units, 1 s, each 1.2 s); larger ones have the higher
priority, and evict smaller ones. Source: `test/performance/scheduler` of github.com/kubernetes-sigs/kueue.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

from autoscaler.gpu.allocator import AllocatorState, allocate
from autoscaler.gpu.claims import AllocationSettings, Claim, Place, Shape, Tenant

COHORTS, QUEUES, QUOTA, BORROWED = 5, 6, 20, 100
STEP = 0.1
"""Seconds between two decisions."""


@dataclass(frozen=True, slots=True)
class Size:
    """One class of workloads: units, run time and interval in seconds, number in each queue, priority."""

    name: str
    units: int
    runs: float
    every: float
    count: int
    priority: int


SIZES = (
    Size("large", 20, 1.0, 1.2, 50, 200),
    Size("medium", 5, 0.5, 0.5, 100, 100),
    Size("small", 1, 0.2, 0.1, 350, 50),
)


@dataclass(slots=True)
class KueueOutcome:
    """Seconds until all have ended, share of the units in use (per cent), mean seconds to admission, evictions."""

    wall: float
    used: float
    admission: dict[str, float]
    evicted: int


@dataclass(slots=True)
class _Line:
    """The workloads of one class in one queue: when those that wait came, and when the running ones end."""

    size: Size
    claim: str
    tenant: str
    waiting: deque[float] = field(default_factory=deque)
    running: list[tuple[float, float]] = field(default_factory=list)
    created: int = 0


def play_cohort(share: float = 1.0) -> KueueOutcome:
    """Play one cohort; all are alike. `share` of the workloads of each class."""
    shapes = {size.name: Shape("example.com/unit", size.units) for size in SIZES}
    lines = [
        _Line(size, f"Job queue-{queue}/{size.name}", f"queue-{queue}") for queue in range(QUEUES) for size in SIZES
    ]
    tenants = {
        line.tenant: Tenant(guarantee={"example.com/unit": QUOTA}, limit={"example.com/unit": QUOTA + BORROWED})
        for line in lines
    }
    settings, state, place = (
        AllocationSettings(tenants),
        AllocatorState(),
        Place("all", "example.com/unit", QUEUES * QUOTA),
    )
    waits: dict[str, list[float]] = {size.name: [] for size in SIZES}
    step, used, evicted, counts = 0, 0.0, 0, {size.name: math.ceil(size.count * share) for size in SIZES}
    while any(line.created < counts[line.size.name] or line.waiting or line.running for line in lines):
        now = step * STEP
        for line in lines:
            line.running = [one for one in line.running if one[0] > now + 1e-9]
            while line.created < counts[line.size.name] and line.created * line.size.every <= now + 1e-9:
                line.waiting.append(now)
                line.created += 1
        claims = [
            Claim(
                line.claim, line.tenant, "serving", shapes[line.size.name], len(line.waiting) + len(line.running),
                held={"all": len(line.running)} if line.running else {}, priority=line.size.priority,
            )
            for line in lines
        ]  # fmt: skip
        found = allocate([place], claims, settings, state, now)
        state = found.state
        for line in lines:
            granted = found.grants[line.claim].replicas
            for _, since in line.running[granted:]:
                line.waiting.appendleft(since)
                evicted += 1
            del line.running[granted:]
            for _ in range(granted - len(line.running)):
                since = line.waiting.popleft()
                waits[line.size.name].append(now - since)
                line.running.append((now + line.size.runs, since))
        used += sum(len(line.running) * line.size.units for line in lines)
        step += 1
    means = {name: statistics.fmean(found) for name, found in waits.items()}
    return KueueOutcome(step * STEP, 100.0 * used / (step * place.units), means, evicted)
