"""What processes hold, before a fault and after it: oracle R, "memory, files and tasks back to base".

    base = holdings(state)
    ... the fault, and its end ...
    await back_to_base(state, base)

A platform's processes are found by its state folder, told apart by their roles; replicas come and go and are counted,
not weighed, unless they are asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from loadtests.bench.processes import ProcessUsage, all_stats, processes_of, usage_of
from tests.support.wait import eventually

SHARE: Final = 0.1
"""How far from its base a figure may be, as the catalogue says."""
FEW: Final = 4
"""Files and tasks more or less that are nothing: a connection that is just closed, a worker that rests."""
SLACK: Final = 8 << 20
"""Bytes that are nothing: caches of a size of their own, pages that the allocator keeps."""
WITHIN: Final = 60.0
"""s after the fault."""
STAYS: Final = ("platform", "gateway", "activator", "zygote")
"""Roles of processes that live as long as the platform does."""


def holdings(state: Path, roles: Iterable[str] = STAYS) -> dict[str, ProcessUsage]:
    """Role → what its processes hold together."""
    wanted, found = set(roles), dict[str, ProcessUsage]()
    for pid, role in processes_of(state):
        if role in wanted:
            found[role] = found.get(role, ProcessUsage()) + usage_of(pid)
    return found


def counts(state: Path) -> Counter[str]:
    """Role → how many processes."""
    return Counter(role for _, role in processes_of(state))


def zombies(state: Path) -> list[int]:
    """Children of a platform's processes that have ended and that nobody has waited for."""
    parents = {pid for pid, _ in processes_of(state)}
    return [pid for pid, stat in all_stats() if stat.state == "Z" and stat.parent in parents]


def excess(base: Mapping[str, ProcessUsage], now: Mapping[str, ProcessUsage]) -> list[str]:
    """What is not back at its base, in words; less memory than before is no fault."""
    told = []
    for role, before in base.items():
        after = now.get(role, ProcessUsage())
        if after.memory > before.memory * (1 + SHARE) + SLACK:
            told.append(f"{role}: {after.memory >> 20} MiB, {before.memory >> 20} MiB before")
        for name in ("files", "tasks"):
            one, other = getattr(before, name), getattr(after, name)
            if abs(other - one) > max(FEW, SHARE * one):
                told.append(f"{role}: {other} {name}, {one} before")
    return told


async def back_to_base(state: Path, base: Mapping[str, ProcessUsage], within: float = WITHIN) -> None:
    """Return once all is back; raises AssertionError with what is not, `within` seconds later."""

    def settled() -> bool:
        told = excess(base, holdings(state, base))
        assert not told, "; ".join(told)
        assert not zombies(state), f"zombies: {zombies(state)}"
        return True

    await eventually(settled, within)
