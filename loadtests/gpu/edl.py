"""PaddlePaddle EDL's two published experiments, with their sizes and times.

Both ran on 133 nodes with 2 348 CPU, of which 50.5 were taken by other Pods. A job has 10 parameter servers of 4 CPU, a
master of 1 CPU, and 2 to 60 trainers of 5 CPU. In case 1, 20 jobs are submitted 10 s apart; in case 2, six jobs train
beside 400 servers of 3 CPU, which are scaled down to 100 and up again. Source: `doc/edl/experiment` of
github.com/PaddlePaddle/edl, before commit 310764e.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loadtests.gpu.cluster import Cluster, Workload
from loadtests.gpu.policies import Policy, Scene, Service, TrainingJob

CPU = 100
"""Units of one CPU."""
NODES = (17,) * 46 + (18,) * 87
OTHERS = 38
"""Units of each node that other Pods hold: 50.5 CPU in all."""
SUBMIT = (13.0, 8.0)
"""Seconds between two jobs of case 1 and of case 2: the scripts wait 10 s and 5 s, submitting takes 3 s."""
FIRST = 8.0
"""Seconds from the begin of case 1 until its first job is submitted: the script waits 5 s."""
WARM = 60.0
"""Seconds before the first job of case 2, in which its servers start."""
STEPS = ((0.0, 400), (120.0, 300), (210.0, 200), (300.0, 100), (390.0, 200), (480.0, 300), (570.0, 400))
"""Case 2: seconds after the first job, and number of servers."""
END_1, END_2 = 550.0, 690.0
OFF_PEAK, JAIN, RISE = (300.0, 370.0), (150.0, 650.0), 390.0
"""Case 2: intervals of the published figures; `RISE`: when servers are scaled up again."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of an experiment in units. `end`: seconds that a trainer takes to end; `most`, `least`: its bounds."""

    nodes: Sequence[int] = tuple(cpus * CPU - OTHERS for cpus in NODES)
    total: int = 2_348 * CPU
    others: int = 133 * OTHERS
    server: int = 3 * CPU
    trainer: int = 5 * CPU
    parameter_servers: int = 10
    parameter_server: int = 4 * CPU
    master: int = 1 * CPU
    least: int = 2
    most: int = 60
    end: float = 31.0
    seed: int = 1


UNIFORM = Sizes(
    nodes=(8,) * 75, total=600, others=0, server=1, trainer=1, parameter_servers=0, parameter_server=1, master=0,
    most=120, end=5.0,
)  # fmt: skip
"""600 equal slots: nothing is lost by sizes that do not fit."""


@dataclass(slots=True)
class Seen:
    """What was seen each second: share of units requested, servers wanted and running, trainers by job."""

    times: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    serving: list[int] = field(default_factory=list)
    trainers: list[list[int]] = field(default_factory=list)
    below_minimum: int = 0
    """Observations of a job with some trainers, fewer than its minimum, after it had started."""
    pending: list[float] = field(default_factory=list)

    def between(self, first: float, last: float) -> range:
        """Return the observations of an interval."""
        return range(int(first), min(int(last) + 1, len(self.times)))

    def use(self, first: float, last: float) -> float:
        """Return the mean share of the units that running Pods request, in per cent."""
        return 100.0 * statistics.fmean(self.used[one] for one in self.between(first, last))

    def jain(self, first: float, last: float) -> float:
        """Return Jain's fairness index of the trainers of jobs, averaged over time."""
        return statistics.fmean(jain_index(self.trainers[one]) for one in self.between(first, last))

    def missing(self) -> float:
        """Return the share of the wanted server-seconds of the rise in which no server ran."""
        rise = self.between(RISE, END_2)
        return sum(max(0, self.wanted[one] - self.serving[one]) for one in rise) / sum(self.wanted[one] for one in rise)

    def waits_of_steps(self) -> list[float]:
        """Return the seconds from each step of the rise until all its servers run; infinite if they never do."""
        found = []
        for number, (begin, servers) in enumerate(STEPS):
            if begin >= RISE:
                until = STEPS[number + 1][0] if number + 1 < len(STEPS) else END_2
                served = (self.times[one] for one in self.between(begin, until - 1) if self.serving[one] >= servers)
                found.append(next(served, float("inf")) - begin)
        return found


def jain_index(values: Sequence[int]) -> float:
    """Return Jain's fairness index: 1 if all are equal, 1/n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def case_1(policy: Policy, sizes: Sizes | None = None, jobs: int = 20) -> Seen:
    """Play case 1. Jobs have 60 trainers if nobody changes that, else their minimum at first."""
    sizes = sizes or Sizes()
    scene = _scene(sizes)
    trainers = sizes.most if policy.name == "off" else sizes.least
    for number in range(jobs):
        scene.cluster.at(FIRST + SUBMIT[0] * number, _submission(policy, scene, sizes, number, trainers))
    return _play(policy, scene, sizes, 0.0, END_1)


def case_2(policy: Policy, sizes: Sizes | None = None, binds: float = 12.0) -> Seen:
    """Play case 2 with a scheduler that binds so many Pods a second. Jobs have 15 trainers at first."""
    sizes = sizes or Sizes()
    scene = _scene(sizes, binds)
    service = Service(scene.cluster.add(Workload("Deployment serving/nginx", sizes.server, policy.priorities[0])))
    scene.services.append(service)
    for time, servers in STEPS:
        scene.cluster.at(time + WARM if time else 0.0, lambda servers=servers: policy.want(scene, service, servers))  # type: ignore[misc]
    for number in range(6):
        scene.cluster.at(WARM + SUBMIT[1] * number, _submission(policy, scene, sizes, number, 15))
    return _play(policy, scene, sizes, WARM, END_2)


def with_end(sizes: Sizes, end: float) -> Sizes:
    """Return the sizes with another end time of trainers."""
    return replace(sizes, end=end)


def _scene(sizes: Sizes, binds: float = 12.0) -> Scene:
    return Scene(Cluster(sizes.nodes, seed=sizes.seed, binds=binds), sizes.others)


def _submission(policy: Policy, scene: Scene, sizes: Sizes, number: int, trainers: int) -> Callable[[], None]:
    _, fixed, lowest = policy.priorities
    name = f"Job team/mnist-{number:02d}"

    def submit() -> None:
        roles = {
            Workload(f"{name}/servers", sizes.parameter_server, fixed, evicts=False): sizes.parameter_servers,
            Workload(f"{name}/master", sizes.master, fixed, evicts=False): 1,
        }
        job = TrainingJob(
            name, {role: size for role, size in roles.items() if role.units and size},
            Workload(f"{name}/trainers", sizes.trainer, lowest, sizes.end), sizes.least, sizes.most,
            submitted=scene.cluster.now,
        )  # fmt: skip
        policy.submit(scene, job, trainers)

    return submit


def _play(policy: Policy, scene: Scene, sizes: Sizes, begin: float, until: float) -> Seen:
    seen = Seen()

    def observe() -> None:
        seen.times.append(scene.cluster.now - begin)
        seen.used.append((scene.cluster.requested() + sizes.others) / sizes.total)
        seen.wanted.append(sum(service.want for service in scene.services))
        seen.serving.append(sum(service.pods.running for service in scene.services))
        seen.trainers.append([job.trainers.running for job in scene.jobs])
        for job in scene.jobs:
            if job.started is None and job.trainers.running:
                job.started = scene.cluster.now
            if job.started is not None:
                seen.below_minimum += job.trainers.bound < job.least

    scene.cluster.every(policy.interval, lambda: policy.tick(scene), 0.0)
    scene.cluster.every(1.0, observe, begin)
    scene.cluster.run_until(begin + until)
    seen.pending = [(begin + until if job.started is None else job.started) - job.submitted for job in scene.jobs]
    return seen
