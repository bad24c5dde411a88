"""Two bounds that know all that will come.

`free`: replicas start in no time, so nobody waits, and one is paid for exactly while its slots are needed. `best`: a
replica starts no earlier than the trace begins and takes its full start time. From then on all is there when it is
needed: who comes within the start time waits until it is over, everybody else is served at once. What it pays for is
bounded from below: requests are packed as if they could move between replicas, each replica is started one start time
before it is needed, and stays idle where that is cheaper than to start again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.outcome import Outcome, Timeline
from loadtests.simulate.workload import Workload

Step = tuple[float, int]
"""A moment, and the replicas that are needed from then on."""


def free(workload: Workload) -> Outcome:
    """Perfect foresight, and a start takes no time."""
    steps = list(needed(workload.arrivals, workload.service, workload.slots))
    timeline, paid, before = Timeline(), 0.0, (0.0, 0)
    for at, replicas in steps:
        paid += (at - before[0]) * before[1]
        timeline.note(at, replicas, 0)
        before = at, replicas
    return Outcome("oracle, starts free", np.zeros(len(workload.arrivals)), paid, 0.0, 0.0, 0, timeline)


def best(workload: Workload) -> Outcome:
    """Perfect foresight of arrivals, from zero replicas at the trace's begin."""
    begins = np.maximum(workload.arrivals, workload.start)
    steps = list(needed(begins, workload.service, workload.slots))
    spans = [span for level in _levels(steps) for span in _joined(level, workload.start)]
    waits = begins - workload.arrivals
    paid = sum(end - begin for begin, end in spans)
    timeline = _timeline(spans, workload.arrivals, waits)
    return Outcome("best possible from zero", waits, paid, 0.0, 0.0, len(spans), timeline)


def needed(begins: FloatArray, service: FloatArray, slots: int) -> Iterator[Step]:
    """How many replicas hold all that is worked on, from moment to moment."""
    ends = begins + service
    moments = np.concatenate([begins, ends])
    changes = np.concatenate([np.ones(len(begins), np.int64), -np.ones(len(ends), np.int64)])
    order = np.argsort(moments, kind="stable")
    times, busy_after = moments[order], np.cumsum(changes[order])
    last = np.append(np.diff(times) > 0.0, True)  # of each moment: who goes and who comes then share a slot
    before = 0
    for at, busy in zip(times[last].tolist(), busy_after[last].tolist(), strict=True):
        replicas = -(-busy // slots)
        if replicas != before:
            yield at, replicas
            before = replicas


def _levels(steps: list[Step]) -> list[list[tuple[float, float]]]:
    """When the first replica is needed, when the second one is, and so on."""
    levels: list[list[tuple[float, float]]] = []
    open_since: list[float] = []
    for at, replicas in steps:
        while len(open_since) < replicas:
            open_since.append(at)
            if len(levels) < len(open_since):
                levels.append([])
        while len(open_since) > replicas:
            since = open_since.pop()
            levels[len(open_since)].append((since, at))
    return levels


def _joined(level: list[tuple[float, float]], start: float) -> Iterator[tuple[float, float]]:
    """When one replica is paid for: pauses of up to a start time are kept, longer ones end in a new start."""
    begin, end = level[0]
    for later, until in level[1:]:
        if later - end > start:
            yield begin - start, end
            begin = later
        end = until
    yield begin - start, end


def _timeline(spans: list[tuple[float, float]], arrivals: FloatArray, waits: FloatArray) -> Timeline:
    late = waits > 0.0
    changes = [(begin, 1, 0) for begin, _ in spans] + [(end, -1, 0) for _, end in spans]
    changes += [(at, 0, 1) for at in arrivals[late].tolist()]
    changes += [(at, 0, -1) for at in (arrivals + waits)[late].tolist()]
    timeline, replicas, queued = Timeline(), 0, 0
    for at, more, waiting in sorted(changes):
        replicas, queued = replicas + more, queued + waiting
        timeline.note(max(at, 0.0), replicas, queued)
    return timeline
