"""Two bounds for all policies: perfect foresight of all requests.

`free`: replicas start in no time, so no request waits, and each replica is billed exactly while it is needed.

`best`: no replica starts before the trace, and each takes its full start time. Requests within the first start time
wait until it ends; all others are served at once. The cost is a lower bound: requests could move between replicas, each
replica starts exactly one start time before it is needed, and it stays idle if that costs less than another start.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.simulate.outcome import Outcome, Timeline
from loadtests.simulate.workload import Workload

Step = tuple[float, int]
"""A time in seconds, and the number of replicas that are needed from then on."""


def free(workload: Workload) -> Outcome:
    """Simulate perfect foresight with starts that take no time."""
    steps = list(needed(workload.arrivals, workload.service, workload.slots))
    timeline, paid, before = Timeline(), 0.0, (0.0, 0)
    for at, replicas in steps:
        paid += (at - before[0]) * before[1]
        timeline.record(at, replicas, 0)
        before = at, replicas
    return Outcome("oracle, starts free", np.zeros(len(workload.arrivals)), paid, 0.0, 0.0, 0, timeline)


def best(workload: Workload) -> Outcome:
    """Simulate perfect foresight of arrivals, with no replicas at the start of the trace."""
    begins = np.maximum(workload.arrivals, workload.start)
    steps = list(needed(begins, workload.service, workload.slots))
    spans = [span for level in _levels(steps) for span in _joined(level, workload.start)]
    waits = begins - workload.arrivals
    paid = sum(end - begin for begin, end in spans)
    timeline = _timeline(spans, workload.arrivals, waits)
    return Outcome("best possible from zero", waits, paid, 0.0, 0.0, len(spans), timeline)


def needed(begins: FloatArray, service: FloatArray, slots: int) -> Iterator[Step]:
    """Yield the changes of the number of replicas that are needed for the running requests."""
    ends = begins + service
    moments = np.concatenate([begins, ends])
    changes = np.concatenate([np.ones(len(begins), np.int64), -np.ones(len(ends), np.int64)])
    order = np.argsort(moments, kind="stable")
    times, busy_after = moments[order], np.cumsum(changes[order])
    # The last change at each time: a request may take a slot that is freed at the same time.
    last = np.append(np.diff(times) > 0.0, True)
    before = 0
    for at, busy in zip(times[last].tolist(), busy_after[last].tolist(), strict=True):
        replicas = -(-busy // slots)
        if replicas != before:
            yield at, replicas
            before = replicas


def _levels(steps: list[Step]) -> list[list[tuple[float, float]]]:
    """Return the (begin, end) intervals in which the first replica is needed, the second one, and so on."""
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
    """Yield the intervals in which one replica is billed: it stays through pauses of up to one start time."""
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
        timeline.record(max(at, 0.0), replicas, queued)
    return timeline
