"""`python -m tests.cluster [--workers N] [--phases PHASE …] [--again]`: run contract, scenarios and cluster tests.

There are six phases. `shared`: most tests work in namespaces of their own, so N processes run them side by side.
`own-replicas`: so do those that run controllers of their own, while the Leases of the installed ones are held.
`ray`: those that start Ray, which loads the machine, run one after another. `schedulers`: so do, with the Leases held,
those of EDL's experiment on nodes of KWOK and of Volcano. `helm`: those of the chart. `exclusive`: so do the tests that
need the cluster for themselves. `--again` runs what failed last time, one after another.
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

PHASES = ("shared", "own-replicas", "ray", "schedulers", "helm", "exclusive")
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
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster", description=__doc__.split(": ", 1)[1].split("\n\n")[0]
    )
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="processes for tests that run side by side")
    parser.add_argument("--again", action="store_true", help="run only what failed last time, one after another")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES, help="phases to run [all]")
    given = parser.parse_args(arguments)
    if given.again:
        return run(*AGAIN)
    workers = ("--numprocesses", str(given.workers))
    shared = own = ray = schedulers = helm = exclusive = 0
    if "shared" in given.phases:
        side_by_side = "not exclusive and not own_replicas and not ray and not schedulers and not helm"
        shared = run("-m", side_by_side, *workers, "--dist", "loadfile", "--no-loadscope-reorder")
    if "own-replicas" in given.phases:
        own = asyncio.run(run_with_leases_held("-m", "own_replicas", *workers, "--dist", "worksteal"))
    if "ray" in given.phases:
        ray = run("-m", "ray")
    if "schedulers" in given.phases:
        schedulers = asyncio.run(run_with_leases_held("-m", "schedulers"))
    if "helm" in given.phases:
        helm = run("-m", "helm")
    if "exclusive" in given.phases:
        exclusive = run("-m", "exclusive")
    return shared or own or ray or schedulers or helm or exclusive


if __name__ == "__main__":
    sys.exit(main())
