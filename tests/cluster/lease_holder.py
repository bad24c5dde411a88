"""One candidate as a process of its own: leads, writes, and says on stdout what happens to it.

    python -m tests.cluster.lease_holder KUBECONFIG CONTEXT NAMESPACE IDENTITY

Lines: `leads FENCING`; `lost`, then what became of a write with the version that it had seen as leader, `refused` or
`written`; `released` after SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from clusters.base.clock import SystemClock
from clusters.base.errors import Conflict
from clusters.base.objects import CONFIG_MAP, version_of
from clusters.kubernetes import KubernetesCluster
from clusters.runtime.lease import LeaderLease, LeaseLost

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
        record = {}
        try:
            fencing = await lease.acquire()
            record = await cluster.patch(CONFIG_MAP, RECORD, {"data": {"by": identity}}, namespace, manager="tests")
            say(f"leads {fencing}")
            await lease.hold()
        except LeaseLost:
            say("lost")
            late = {"metadata": {"resourceVersion": version_of(record)}, "data": {"by": "a leader of the past"}}
            try:
                await cluster.patch(CONFIG_MAP, RECORD, late, namespace, manager="tests")
                say("written")
            except Conflict:
                say("refused")
        except asyncio.CancelledError:
            await lease.release()
            say("released")


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
