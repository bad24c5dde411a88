"""A control plane in a process that tests can kill: store, informers and kubelet with one Pod `a`.

It prints "ready PID" when the Pod is ready. On SIGTERM it deletes the Pod and exits.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parents[3]))

from clusters.base.clock import SystemClock
from clusters.base.errors import AlreadyExists
from clusters.base.objects import POD
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from tests.clusters.kubelet.nodes import NAMESPACE, Nodes, make_pod, process_of


async def main(folder: Path) -> None:
    """Run until SIGTERM."""
    store = Store.open(folder / "cluster.db")
    nodes = Nodes(EmbeddedCluster(store, clock=SystemClock()), folder / "state")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await nodes.start()
    try:
        await nodes.create(make_pod("a"))
    except AlreadyExists:
        print("found", flush=True)
    print("ready", process_of(await nodes.ready("a")).pid, flush=True)
    await ended.wait()
    await nodes.cluster.delete(POD, "a", NAMESPACE)
    await nodes.gone("a")
    await nodes.close()
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
