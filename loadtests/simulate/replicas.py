"""The replicas of one revision in a simulation: starting, ready and draining ones.

Order of removal: starting ones first, the newest before older ones; then those with the fewest requests. A replica with
requests drains: it accepts no new ones and is billed until its last one is answered. This applies to all policies here,
though plain Kubernetes would often stop a busy replica beside an idle one.
"""

from __future__ import annotations

from loadtests.simulate.starts import Start


class Replica:
    """One replica: when it was requested, its start, and its requests."""

    __slots__ = ("asked_at", "drains", "load", "start")

    def __init__(self, asked_at: float, start: Start) -> None:
        self.asked_at = asked_at
        self.start = start
        self.load = 0
        self.drains = False


class Replicas:
    """All replicas. `serving` requests are in replicas that accept others too, `draining` in those that do not."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._starting: dict[Replica, None] = {}
        self._ready: list[dict[Replica, None]] = [{} for _ in range(slots + 1)]  # by load, each in order of arrival
        self._going = 0
        self.ready = 0
        self.serving = 0
        self.draining = 0

    @property
    def current(self) -> int:
        """Desired replicas: ready or starting."""
        return self.ready + len(self._starting)

    @property
    def billed(self) -> int:
        """Billed replicas, including draining ones."""
        return self.current + self._going

    def begin(self, replica: Replica) -> None:
        """Start the replica."""
        self._starting[replica] = None

    def is_awaited(self, replica: Replica) -> bool:
        """Return whether it is starting and was not removed."""
        return replica in self._starting

    def become_ready(self, replica: Replica) -> None:
        """Accept requests on the replica from now on."""
        del self._starting[replica]
        self._ready[0][replica] = None
        self.ready += 1

    def take(self) -> Replica | None:
        """Return the replica with the fewest requests, for one more; None when all are full."""
        for load in range(self._slots):
            if self._ready[load]:
                replica = next(iter(self._ready[load]))
                self._move(replica, load + 1)
                self.serving += 1
                return replica
        return None

    def answered(self, replica: Replica) -> None:
        """Record that one of its requests was answered."""
        if not replica.drains:
            self.serving -= 1
            self._move(replica, replica.load - 1)
            return
        self.draining -= 1
        replica.load -= 1
        self._going -= replica.load == 0

    def remove(self, count: int) -> None:
        """Remove that many replicas."""
        for _ in range(min(count, self.current)):
            if self._starting:
                self._starting.popitem()
                continue
            least = next(group for group in self._ready if group)
            replica, _ = least.popitem()
            self.ready -= 1
            if replica.load:
                replica.drains = True
                self._going += 1
                self.serving -= replica.load
                self.draining += replica.load

    def _move(self, replica: Replica, load: int) -> None:
        del self._ready[replica.load][replica]
        replica.load = load
        self._ready[load][replica] = None
