"""Jobs with an amount of work on one resource, under the allocator or under fixed sizes, in steps of time.

The work of a job is in unit-seconds, and all its units work at full speed once they have started. This is enough for
experiments about who gets how much; `cluster.py` has nodes, Pods and a scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscaler.gpu.allocator import AllocatorState, allocate
from autoscaler.gpu.claims import AllocationSettings, Claim, Place, Shape

RESOURCE = "example.com/unit"


@dataclass(eq=False, slots=True)
class Work:
    """A job: `work` unit-seconds, sizes from `least` to `most`, `start` seconds until a first or additional unit works.

    `held`: the units that it has; `began`, `ended`: seconds.
    """

    name: str
    submitted: float
    work: float
    least: int
    most: int
    start: float = 0.0
    tenant: str = "team"
    held: int = 0
    began: float | None = None
    ended: float | None = None
    joins: list[float] = field(default_factory=list)
    """When each unit begins to work, in seconds."""

    def resize(self, units: int, now: float) -> None:
        """Add units, which begin to work after the start time, or remove the last ones."""
        self.joins = self.joins[:units] + [now + self.start] * (units - len(self.joins))
        self.held = units
        if units and self.began is None:
            self.began = now

    def advance(self, now: float, step: float) -> None:
        """Work for a step that ends `now`."""
        self.work -= step * sum(join <= now - step for join in self.joins)
        if self.work <= 1e-9:
            self.ended, self.held, self.joins = now, 0, []


Sizer = Callable[[float, Sequence[Work]], None]
"""Sets the sizes of the jobs that have been submitted and have not ended, at a time."""


def fixed(total: int) -> Sizer:
    """Return the sizer without elasticity: jobs wait, in order, until all units that they want are free."""

    def size(now: float, jobs: Sequence[Work]) -> None:
        free = total - sum(job.held for job in jobs)
        for job in jobs:
            if not job.held:
                if job.most > free:
                    return
                job.resize(job.most, now)
                free -= job.most

    return size


class Allocated:
    """The sizer with Knodel's allocator. `serving` returns the units that serving wants at a time."""

    def __init__(
        self,
        places: Sequence[Place],
        settings: AllocationSettings | None = None,
        serving: Callable[[float], int] | None = None,
    ) -> None:
        self._places = places
        self._settings = settings or AllocationSettings(settle=0.0, start_pause=0.0)
        self._serving = serving or (lambda now: 0)
        self._state = AllocatorState()
        self._shape = Shape(RESOURCE, 1)
        self.served = 0

    def __call__(self, now: float, jobs: Sequence[Work]) -> None:
        """Resize all jobs to their grants."""
        node = self._places[0].node
        claims = [
            Claim(
                job.name, job.tenant, "training", self._shape, job.most, job.least, {node: job.held} if job.held else {},  # noqa: E501
                since=job.submitted, running=job.held >= job.least,
            )
            for job in jobs
        ]  # fmt: skip
        claims.append(Claim("Model serving/chat", "serving", "serving", self._shape, self._serving(now)))
        found = allocate(self._places, claims, self._settings, self._state, now)
        self._state = found.state
        self.served = found.grants["Model serving/chat"].replicas
        for job in jobs:
            job.resize(found.grants[job.name].replicas, now)


def play(jobs: Sequence[Work], size: Sizer, until: float, step: float = 1.0) -> list[tuple[float, int]]:
    """Play the jobs until all have ended, or a time. Return (seconds, units held) of each step."""
    seen, now = [], 0.0
    waiting, present = sorted(jobs, key=lambda job: job.submitted), list[Work]()
    while now < until and (waiting or present):
        while waiting and waiting[0].submitted <= now:
            present.append(waiting.pop(0))
        size(now, present)
        seen.append((now, sum(job.held for job in present)))
        now += step
        for job in present:
            job.advance(now, step)
        present = [job for job in present if job.ended is None]
    return seen
