"""Who sets the sizes of training jobs: nobody, the rules of PaddlePaddle EDL, or Knodel's allocator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.gpu.allocator import AllocatorState, allocate
from autoscaler.gpu.claims import AllocationSettings, Claim, Kind, Place, Shape
from loadtests.gpu.cluster import Cluster, Phase, Workload

RESOURCE = "example.com/unit"


@dataclass(eq=False, slots=True)
class TrainingJob:
    """A job: Pods that it cannot do without (parameter servers, a master) with their number, and trainers.

    `least`, `most`: bounds of the trainers; `submitted`: seconds; `started`: when its first trainer ran.
    """

    name: str
    fixed: Mapping[Workload, int]
    trainers: Workload
    least: int
    most: int
    tenant: str = "team"
    submitted: float = 0.0
    started: float | None = None


@dataclass(eq=False, slots=True)
class Service:
    """A model or service, and the replicas that it wants."""

    pods: Workload
    want: int = 0
    tenant: str = "serving"


@dataclass(eq=False, slots=True)
class Scene:
    """What a policy sees and sets. `others`: units of the nodes that Pods outside of the simulation hold."""

    cluster: Cluster
    others: int = 0
    services: list[Service] = field(default_factory=list)
    jobs: list[TrainingJob] = field(default_factory=list)


class Policy(Protocol):
    """Decides the sizes of jobs. Priorities are those of Pods of services, of fixed Pods of jobs, and of trainers."""

    name: str
    interval: float
    priorities: tuple[int, int, int]

    def submit(self, scene: Scene, job: TrainingJob, trainers: int) -> None:
        """Create a job's Pods; `trainers` is the size that its owner set."""

    def want(self, scene: Scene, service: Service, replicas: int) -> None:
        """Note what a service wants from now on."""

    def tick(self, scene: Scene) -> None:
        """Set sizes. It is called every `interval` seconds."""


class Fixed:
    """Nobody changes what the owners set."""

    name = "off"
    interval = 5.0
    priorities = (0, 0, 0)

    def submit(self, scene: Scene, job: TrainingJob, trainers: int) -> None:
        """Create all Pods at once."""
        scene.jobs.append(job)
        for workload, size in {**job.fixed, job.trainers: trainers}.items():
            scene.cluster.add(workload)
            scene.cluster.scale(workload, size)

    def want(self, scene: Scene, service: Service, replicas: int) -> None:
        """Scale at once."""
        service.want = replicas
        scene.cluster.scale(service.pods, replicas)

    def tick(self, scene: Scene) -> None:
        """Do nothing."""


class Edl(Fixed):
    """The autoscaler of PaddlePaddle EDL, v0.1.0, `pkg/autoscaler.go`: every 5 s and when a job is submitted.

    Its rounds add one trainer to each job, the least fulfilled first, while requests stay within 97 % of the units and
    a
    node has room, and remove one from each, the most fulfilled first, while they are above, until nothing changes.
    Requests include those of Pods that wait or are being deleted. Only jobs whose trainers all run are changed, also
    those
    that are being deleted counted, unless all trainers of some job are pending.
    """

    name = "EDL"
    limit = 0.97

    def submit(self, scene: Scene, job: TrainingJob, trainers: int) -> None:
        """Create all Pods at once, then decide."""
        super().submit(scene, job, trainers)
        self.tick(scene)

    def tick(self, scene: Scene) -> None:
        """Change all jobs by what the rounds found."""
        is_one_pending = any(
            len(job.trainers.pods) == job.trainers.count(Phase.PENDING, Phase.STARTING) for job in scene.jobs
        )
        jobs = [job for job in scene.jobs if is_one_pending or job.trainers.running == len(job.trainers.pods)]
        most = self.limit * (scene.cluster.total + scene.others) - scene.others
        for job, change in _edl_rounds(scene.cluster, jobs, most).items():
            if change:
                scene.cluster.scale(job.trainers, job.trainers.wanted + change)


def _edl_rounds(cluster: Cluster, jobs: Sequence[TrainingJob], most: float) -> dict[TrainingJob, int]:
    requests = sum(len(workload.pods) * workload.units for workload in cluster.workloads)
    idle = [node.free for node in cluster.nodes]
    ordered = sorted(jobs, key=lambda job: (job.trainers.wanted - job.least) / (job.most - job.least))
    change = dict.fromkeys(ordered, 0)
    changed = True
    while changed:
        changed = False
        for job in ordered:
            units, room = job.trainers.units, max(range(len(idle)), key=idle.__getitem__)
            if job.trainers.wanted + change[job] < job.most and idle[room] >= units and most - requests >= units:
                change[job] += 1
                requests += units
                idle[room] -= units
                changed = True
        for job in reversed(ordered):
            if requests > most and job.trainers.wanted + change[job] > job.least:
                change[job] -= 1
                requests -= job.trainers.units
                changed = True
    return change


class Knodel:
    """Knodel's allocator, once a second. Pods of services evict trainers; fixed Pods of jobs wait until these shrink.

    While a Pod of a service waits for a node, the scheduler chooses the victims: a job's size is reduced only by Pods
    that have no node. When none waits, all jobs have what they were granted.
    """

    name = "Knodel"
    interval = 1.0
    priorities = (1_000, 0, -1_000)

    def __init__(self, settings: AllocationSettings | None = None) -> None:
        self._settings = settings or AllocationSettings()
        self._state = AllocatorState()
        self._shapes: dict[int, Shape] = {}

    def submit(self, scene: Scene, job: TrainingJob, trainers: int) -> None:
        """Create no Pods until the job is granted its minimum."""
        scene.jobs.append(job)
        for workload in (*job.fixed, job.trainers):
            scene.cluster.add(workload)

    def want(self, scene: Scene, service: Service, replicas: int) -> None:
        """Note it and decide."""
        service.want = replicas
        self.tick(scene)

    def tick(self, scene: Scene) -> None:
        """Set all sizes to the grants."""
        found = allocate(_places(scene.cluster), self._claims(scene), self._settings, self._state, scene.cluster.now)
        self._state = found.state
        for service in scene.services:
            scene.cluster.scale(service.pods, found.grants[service.pods.name].replicas)
        for job in scene.jobs:
            for workload in job.fixed:
                scene.cluster.scale(workload, found.grants[workload.name].replicas)
        for job in scene.jobs:
            granted, trainers = found.grants[job.trainers.name].replicas, job.trainers
            if scene.cluster.is_waiting_above(trainers.priority):
                granted = max(granted, trainers.bound)
            scene.cluster.scale(trainers, granted)

    def _claims(self, scene: Scene) -> list[Claim]:
        claims = [
            self._claim(service.pods, service.tenant, "serving", service.want, 0, 0.0) for service in scene.services
        ]
        for job in scene.jobs:
            for workload, size in job.fixed.items():
                claims.append(self._claim(workload, job.tenant, "training", size, size, job.submitted))
            claims.append(self._claim(job.trainers, job.tenant, "training", job.most, job.least, job.submitted))
        return claims

    def _claim(self, workload: Workload, tenant: str, kind: Kind, want: int, least: int, since: float) -> Claim:
        held = Counter(pod.node.name for pod in workload.pods if pod.node is not None and pod.is_bound)
        shape = self._shapes.setdefault(workload.units, Shape(RESOURCE, workload.units))
        is_running = bool(least) and held.total() >= least
        return Claim(workload.name, tenant, kind, shape, want, least, held, since=since, running=is_running)


def _places(cluster: Cluster) -> list[Place]:
    return [Place(node.name, RESOURCE, node.units) for node in cluster.nodes]
