"""A simulated cluster on a virtual clock: nodes, Pods, their controllers, and a scheduler with priorities.

1. The scheduler binds the Pod of the highest priority first, then the oldest, at most `binds` Pods a second, on the
node
   with the most free units (LeastAllocated, the default of kube-scheduler).
2. A Pod that fits nowhere evicts Pods of lower priority, as kube-scheduler does: on the node with the fewest victims,
   and there no more than needed. The room is reserved for it until the victims have ended.
3. A bound Pod runs after a start time. A deleted one holds its units until its end time has passed; until then its
phase
   is Running, as in Kubernetes.
4. A controller replaces evicted Pods at once. It deletes Pods that have no node first, then the youngest.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto


class Phase(Enum):
    """What a Pod does."""

    PENDING = auto()
    STARTING = auto()
    RUNNING = auto()
    ENDING = auto()
    GONE = auto()


@dataclass(eq=False, slots=True)
class Node:
    """A node. `units` are what Pods of the simulation may hold; `reserved` are evicting Pods that wait for room here."""  # noqa: E501

    name: str
    units: int
    pods: set[Pod] = field(default_factory=set)
    free: int = 0
    reserved: set[Pod] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.free = self.units

    def free_for(self, pod: Pod) -> int:
        """Return the free units without those reserved for other Pods of the same or a higher priority."""
        if not self.reserved:
            return self.free
        return self.free - sum(
            other.workload.units
            for other in self.reserved
            if other is not pod and other.workload.priority >= pod.workload.priority
        )


@dataclass(eq=False, slots=True)
class Pod:
    """One Pod of a workload. `began`: seconds, when it was bound; `ran`: whether it has run."""

    workload: Workload
    number: int
    phase: Phase = Phase.PENDING
    node: Node | None = None
    began: float = 0.0
    ran: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it starts or runs and is not being deleted."""
        return self.phase in (Phase.STARTING, Phase.RUNNING)


@dataclass(eq=False, slots=True)
class Workload:
    """The Pods of one controller: a Deployment, or one role of a Job.

    `end`: seconds from the deletion of a Pod until its units are free. `evicts`: whether it may evict Pods of lower
    priority (`preemptionPolicy`). `wanted`: the replicas that the controller keeps.
    """

    name: str
    units: int
    priority: int = 0
    end: float = 1.0
    evicts: bool = True
    wanted: int = 0
    pods: dict[Pod, None] = field(default_factory=dict)
    """In order of creation, without those that have ended."""

    @property
    def active(self) -> list[Pod]:
        """Pods that are not being deleted."""
        return [pod for pod in self.pods if pod.phase is not Phase.ENDING]

    def count(self, *phases: Phase) -> int:
        """Return the number of Pods in these phases."""
        return sum(pod.phase in phases for pod in self.pods)

    @property
    def running(self) -> int:
        """Pods that work: in phase Running and not being deleted."""
        return self.count(Phase.RUNNING)

    @property
    def bound(self) -> int:
        """Pods that start or run."""
        return self.count(Phase.STARTING, Phase.RUNNING)


class Cluster:
    """The nodes, all workloads, and the events to come. Times are seconds from the start.

    Example:
        cluster = Cluster([8, 8])
        server = cluster.add(Workload("server", units=1))
        cluster.at(0.0, lambda: cluster.scale(server, 3))
        cluster.run_until(20.0)
        server.running  # 3
    """

    def __init__(
        self, units: Sequence[int], *, seed: int = 1, start: tuple[float, float] = (3.0, 9.0), binds: float = 12.0
    ) -> None:
        self.now = 0.0
        self.nodes = [Node(f"node-{number:03d}", size) for number, size in enumerate(units)]
        self.workloads: list[Workload] = []
        self._random = random.Random(seed)
        self._start = start
        self._interval = 1.0 / binds
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._pending: dict[Pod, Node | None] = {}  # with the node that is reserved
        self._next_slot = 0.0
        self._is_scheduled = False

    @property
    def total(self) -> int:
        """All units of the nodes."""
        return sum(node.units for node in self.nodes)

    def requested(self) -> int:
        """Return the units of the Pods in phase Running, those being deleted included."""
        return sum(
            pod.workload.units
            for node in self.nodes
            for pod in node.pods
            if pod.phase is Phase.RUNNING or (pod.phase is Phase.ENDING and pod.ran)
        )

    def is_waiting_above(self, priority: int) -> bool:
        """Return whether a Pod that may evict those of this priority has no node."""
        return any(pod.workload.evicts and pod.workload.priority > priority for pod in self._pending)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._events, (time, next(self._numbers), action))

    def every(self, interval: float, action: Callable[[], None], first: float = 0.0) -> None:
        """Do something again and again."""

        def again() -> None:
            action()
            self.at(self.now + interval, again)

        self.at(first, again)

    def run_until(self, time: float) -> None:
        """Play the events up to a time."""
        while self._events and self._events[0][0] <= time:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = time

    def add(self, workload: Workload) -> Workload:
        """Add a workload without Pods."""
        self.workloads.append(workload)
        return workload

    def scale(self, workload: Workload, replicas: int) -> None:
        """Set the replicas of a workload; its controller creates or deletes Pods at once."""
        workload.wanted = replicas
        active = workload.active
        for _ in range(replicas - len(active)):
            pod = Pod(workload, next(self._numbers))
            workload.pods[pod] = None
            self._pending[pod] = None
            self._wake()
        if len(active) > replicas:
            order = {Phase.PENDING: 0, Phase.STARTING: 1, Phase.RUNNING: 2}
            active.sort(key=lambda pod: (order[pod.phase], -pod.number))
            for pod in active[: len(active) - replicas]:
                self._delete(pod)

    def remove(self, workload: Workload) -> None:
        """Remove a workload, as when its job has ended: its Pods are gone at once."""
        self.workloads.remove(workload)
        workload.wanted = 0
        for pod in list(workload.pods):
            self._release(pod)

    def _delete(self, pod: Pod) -> None:
        if pod.phase is Phase.PENDING:
            self._release(pod)
            return
        pod.phase = Phase.ENDING
        self.at(self.now + pod.workload.end, lambda: self._release(pod))

    def _release(self, pod: Pod) -> None:
        if pod.phase is Phase.GONE:
            return
        pod.phase = Phase.GONE
        reserved = self._pending.pop(pod, None)
        if reserved is not None:
            reserved.reserved.discard(pod)
        pod.workload.pods.pop(pod, None)
        if pod.node is not None:
            pod.node.pods.discard(pod)
            pod.node.free += pod.workload.units
        self._wake()

    def _wake(self) -> None:
        if self._pending and not self._is_scheduled:
            self._is_scheduled = True
            self.at(max(self.now, self._next_slot), self._schedule)

    def _schedule(self) -> None:
        """Bind one Pod, or evict Pods for one; then go on after an interval, until no Pod fits."""
        self._is_scheduled = False
        hopeless: set[Workload] = set()
        for pod in sorted(self._pending, key=lambda pod: (-pod.workload.priority, pod.number)):
            reserved = self._pending[pod]
            if pod.workload in hopeless and reserved is None:
                continue
            node = self._node_for(pod, reserved)
            if node is not None:
                self._bind(pod, node)
            elif reserved is not None:
                continue
            elif not pod.workload.evicts or not self._evict_for(pod):
                hopeless.add(pod.workload)
                continue
            self._next_slot = self.now + self._interval
            self._wake()
            return

    def _node_for(self, pod: Pod, reserved: Node | None) -> Node | None:
        units = pod.workload.units
        if reserved is not None and reserved.free_for(pod) >= units:
            return reserved
        best, most = None, units - 1
        for node in self.nodes:
            if node.free > most and (free := node.free_for(pod)) > most:
                best, most = node, free
        return best

    def _bind(self, pod: Pod, node: Node) -> None:
        reserved = self._pending.pop(pod)
        if reserved is not None:
            reserved.reserved.discard(pod)
        pod.phase, pod.node, pod.began = Phase.STARTING, node, self.now
        node.pods.add(pod)
        node.free -= pod.workload.units
        self.at(self.now + self._random.uniform(*self._start), lambda: self._started(pod))

    def _started(self, pod: Pod) -> None:
        if pod.phase is Phase.STARTING:
            pod.phase, pod.ran = Phase.RUNNING, True

    def _evict_for(self, pod: Pod) -> bool:
        """Evict Pods of lower priority where fewest are needed. Return False if that makes no room."""
        best: tuple[int, int, float, int] | None = None
        chosen: tuple[Node, list[Pod]] | None = None
        for number, node in enumerate(self.nodes):
            victims = _victims(node, pod)
            if victims is None:
                continue
            highest = max((one.workload.priority for one in victims), default=-(2**31))
            latest = min((one.began for one in victims), default=0.0)
            rank = (highest, len(victims), -latest, number)
            if best is None or rank < best:
                best, chosen = rank, (node, victims)
        if chosen is None:
            return False
        node, victims = chosen
        node.reserved.add(pod)
        self._pending[pod] = node
        for victim in victims:
            self._delete(victim)
        for workload in {victim.workload: None for victim in victims}:
            self.scale(workload, workload.wanted)
        return True


def _victims(node: Node, pod: Pod) -> list[Pod] | None:
    """Return the Pods to evict on a node, none if enough Pods are ending there; None if it has too few units."""
    lower = [one for one in node.pods if one.workload.priority < pod.workload.priority]
    room = node.free_for(pod) + sum(one.workload.units for one in lower) - pod.workload.units
    if room < 0:
        return None
    bound = sorted(
        (one for one in lower if one.is_bound), key=lambda one: (-one.workload.priority, one.began, one.number)
    )
    victims = []
    for one in bound:
        if one.workload.units <= room:
            room -= one.workload.units
        else:
            victims.append(one)
    return victims
