"""Benchmark of the event webhook: accepted, durable events. The webhook runs on one core, the senders on another.

Each load has a webhook of its own, which is killed at the end. All acknowledged events must be in its file.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

from clusters.base.objects import MODEL_EVENT
from clusters.embedded.store.database import Database
from loadtests.bench.events_load import LoadResult, as_fast_as_answered, at_a_rate, batch, single
from loadtests.bench.figure import Figure, percentile
from loadtests.bench.processes import cpu_seconds
from serving.types.settings.state import STORE_FILE

SINGLES, CONNECTIONS = 10_000, 32
BATCHES, SIZE, BATCH_CONNECTIONS = 600, 100, 8
RATE, SECONDS = 1000.0, 5.0
WARM_UP = 300  # requests of one event before each load

Load = Callable[[int], Coroutine[None, None, LoadResult]]
"""A load: takes the port of the webhook and returns the result."""


def events(folder: Path) -> Iterator[Figure]:
    """Yield all figures of the webhook."""
    singles = [single() for _ in range(SINGLES)]
    told = _measured(folder / "single", lambda port: as_fast_as_answered(port, singles, CONNECTIONS))
    yield Figure(f"events accepted, one by one over {CONNECTIONS} connections", told.rate, "/s", 2500, least=True)
    yield Figure("  CPU time per event", told.busy / told.taken * 1e6, "µs")
    batches = [batch(SIZE) for _ in range(BATCHES)]
    told = _measured(folder / "batch", lambda port: as_fast_as_answered(port, batches, BATCH_CONNECTIONS))
    yield Figure(f"events accepted, in batches of {SIZE}", told.rate, "/s", 20_000, least=True)
    yield Figure("  CPU time per event", told.busy / told.taken * 1e6, "µs")
    paced = [single() for _ in range(int(RATE * SECONDS))]
    told = _measured(folder / "rate", lambda port: at_a_rate(port, paced, CONNECTIONS, RATE))
    p50, p99 = (percentile(told.latencies, share) * 1000 for share in (0.5, 0.99))
    yield Figure(f"acknowledgement latency at {RATE:g}/s, p50", p50, "ms")
    yield Figure(f"acknowledgement latency at {RATE:g}/s, p99", p99, "ms", 20)


def _measured(folder: Path, load: Load) -> LoadResult:
    """Run one load. Raises SystemExit if an event was rejected, or acknowledged but not kept."""
    folder.mkdir()
    cores = sorted(os.sched_getaffinity(0))
    with _webhook(folder, cores[0]) as (pid, port), _on_core(cores[-1]):
        warm = asyncio.run(as_fast_as_answered(port, [single() for _ in range(WARM_UP)], CONNECTIONS))
        before = cpu_seconds(pid)
        outcome = asyncio.run(load(port))
        outcome.busy = cpu_seconds(pid) - before
    rows = Database.open(folder / STORE_FILE).load()
    kept, promised = sum(row.resource == MODEL_EVENT.resource for row in rows), warm.taken + outcome.taken
    if outcome.refused or kept != promised:
        raise SystemExit(f"{outcome.refused} requests were rejected; {promised} events acknowledged, {kept} kept")
    return outcome


@contextmanager
def _webhook(folder: Path, core: int) -> Iterator[tuple[int, int]]:
    """Run the webhook on `core`; yield its pid and port."""
    argv = ["taskset", "--cpu-list", str(core), sys.executable, "-m", "loadtests.bench.events_server", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = process.stdout.readline() if process.stdout else ""
            if not port:
                raise SystemExit("the webhook did not start")
            yield process.pid, int(port)
        finally:
            process.kill()


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Pin this process to `core`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
