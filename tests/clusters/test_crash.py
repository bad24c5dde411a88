"""After SIGKILL at any time, every acknowledged write is stored."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from clusters.base.objects import MODEL, Key, Object
from clusters.embedded.store.batch import Remove
from clusters.embedded.store.store import Store

WRITER = """
import asyncio, sys
from pathlib import Path
from clusters.base.clock import SystemClock
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from clusters.base.objects import MODEL

async def write(cluster, worker):
    for n in range(1_000_000):
        name = f"w{worker}-{n}"
        await cluster.create(MODEL, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"n": n}}, manager="t")
        print("put", name, flush=True)
        if n % 3 == 2:
            await cluster.delete(MODEL, f"w{worker}-{n - 1}", "ns")
            print("drop", f"w{worker}-{n - 1}", flush=True)

async def main():
    cluster = EmbeddedCluster(Store.open(Path(sys.argv[1])), clock=SystemClock())
    await asyncio.gather(*(write(cluster, worker) for worker in range(8)))

asyncio.run(main())
"""


async def acknowledged_until_killed(path: Path, lines: int) -> list[list[str]]:
    """Let a process write, and kill it after a number of acknowledgements. Return all acknowledged writes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    told = [(await process.stdout.readline()).decode() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    told += (await process.stdout.read()).decode().splitlines(keepends=True)
    await process.wait()
    return [line.split() for line in told if line.endswith("\n")]


@pytest.mark.fault("I11")
async def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    for lines in (5, 150, 400):
        told = await acknowledged_until_killed(path, lines)
        dropped = {name for verb, name in told if verb == "drop"}
        kept = {name for verb, name in told if verb == "put"} - dropped
        store = Store.open(path)
        present = {key.name for key in store.of_kind(MODEL)}
        versions = [int(obj["metadata"]["resourceVersion"]) for obj in store.of_kind(MODEL).values()]
        assert max(versions) <= store.version
        pending_drops = kept - present  # asked for, written, and killed before the line was printed
        assert all(int(name.partition("-")[2]) % 3 == 1 for name in pending_drops)
        assert len(pending_drops) <= 8
        assert not dropped & present
        for name in present:
            await store.update(MODEL, Key("ns", name), _remove)
        await store.close()


def _remove(before: Object | None) -> Remove:
    assert before is not None
    return Remove(before)
