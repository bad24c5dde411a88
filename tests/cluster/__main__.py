"""`python -m tests.cluster [--workers N] [--again]`: run contract, scenarios and cluster tests on a real cluster.

There are three phases. Most tests work in namespaces of their own, so N processes run them side by side. Then come,
side by side too, those that run controllers of their own: the Leases of the installed ones are held meanwhile. The
tests that need the cluster for themselves follow, one after another. `--again` runs what failed last time, one after
another.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence

from autoscaler.main import PROGRAM as AUTOSCALER
from serving.platform.main import PROGRAM as CONTROLLER
from tests.cluster import leases
from tests.support.kubernetes import find_target, kubernetes_cluster

FOLDERS = ("tests/contract", "tests/scenarios", "tests/cluster")
PYTEST = (sys.executable, "-m", "pytest", "--cluster", "kubernetes", "--timeout", "600", "--durations", "20")
CACHE = ("-o", "cache_dir=.pytest_cache/cluster")
"""A record of failures of their own: other tests may run beside these."""
AGAIN = ("--last-failed", "--last-failed-no-failures", "all")


def run(*options: str) -> int:
    """Run pytest with `options` over all folders and return its exit code."""
    return subprocess.run([*PYTEST, *CACHE, *options, *FOLDERS], check=False).returncode


async def run_with_leases_held(*options: str) -> int:
    """Run pytest while the installed controllers stand by."""
    async with (
        kubernetes_cluster(find_target()) as cluster,
        leases.held(cluster, AUTOSCALER.lease, leases.RUN),
        leases.held(cluster, CONTROLLER.lease, leases.RUN),
    ):
        return await asyncio.to_thread(run, *options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name; return 0 when every test passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.split(": ")[1])
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="processes for tests that run side by side")
    parser.add_argument("--again", action="store_true", help="run only what failed last time, one after another")
    given = parser.parse_args(arguments)
    if given.again:
        return run(*AGAIN)
    workers = ("--numprocesses", str(given.workers))
    shared = run("-m", "not exclusive and not own_replicas", *workers, "--dist", "loadfile")
    own = asyncio.run(run_with_leases_held("-m", "own_replicas", *workers, "--dist", "worksteal"))
    return run("-m", "exclusive") or own or shared


if __name__ == "__main__":
    sys.exit(main())
