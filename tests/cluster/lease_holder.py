"""One candidate as a process of its own: leads, writes, and says on stdout what happens to it.

    python -m tests.cluster.lease_holder KUBECONFIG CONTEXT NAMESPACE IDENTITY

Lines: `leads FENCING`, then `lost`, then what became of the write that it had planned before: `refused` or `written`.
SIGTERM: `released`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from clusters.clock import SystemClock
from clusters.errors import Conflict
from clusters.kubernetes import KubernetesCluster
from clusters.lease import LeaderLease, LeaseLost
from clusters.objects import CONFIG_MAP, version_of

LEASE_NAME = "leader"
RECORD = "record"
DURATION, RENEW_EVERY = 3.0, 1.0  # s


async def main(kubeconfig: str, context: str, namespace: str, identity: str) -> None:
    """Lead until lost."""
    async with KubernetesCluster.connect(context, Path(kubeconfig)) as cluster:
        lease = LeaderLease(cluster, LEASE_NAME, namespace, identity, SystemClock(), DURATION, RENEW_EVERY)
        leading = asyncio.current_task()
        if leading is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leading.cancel)
        try:
            say(f"leads {await lease.acquire()}")
            seen = await cluster.get(CONFIG_MAP, RECORD, namespace)
            patch = {"metadata": {"resourceVersion": version_of(seen)}, "data": {"by": identity}}
            if not seen.get("data"):
                await lease.hold()
            await cluster.patch(CONFIG_MAP, RECORD, patch, namespace, manager="tests")
            await lease.hold()
        except LeaseLost:
            say("lost")
            try:
                await cluster.patch(CONFIG_MAP, RECORD, patch, namespace, manager="tests")
                say("written")
            except Conflict:
                say("refused")
        except asyncio.CancelledError:
            await lease.release()
            say("released")


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)  # noqa: T201 - this is the program's output


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
