"""`python -m tests.cluster [OPTION …]`: run contract, scenarios and cluster tests on a real cluster.

There are six phases. `shared`: most tests work in namespaces of their own, so N processes run them side by side.
`own-replicas`: so do those that run controllers of their own, while the Leases of the installed ones are held.
`ray`: those that start Ray, which loads the machine, run one after another. `schedulers`: so do, with the Leases held,
those of EDL's experiment on nodes of KWOK and of Volcano. `helm`: those of the chart. `exclusive`: so do the tests that
need the cluster for themselves. `--again` runs what failed last time, one after another. `--chart` installs Knodel from
the Helm chart before them, in place of the testbed's installation, and that one again after them.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from autoscaler.main import PROGRAM as AUTOSCALER
from serving.platform.main import PROGRAM as CONTROLLER
from tests.cluster import leases
from tests.cluster.helm import helm_on_the_testbed
from tests.manifests.chart.generate import CHART
from tests.support.kubernetes import find_target, kubernetes_cluster
from tests.testbed.paths import standard

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
    parser.add_argument("--chart", action="store_true", help="run on Knodel from the Helm chart (the testbed only)")
    given = parser.parse_args(arguments)
    with on_the_chart() if given.chart else nullcontext():
        return run(*AGAIN) if given.again else run_phases(given.phases, given.workers)


@contextmanager
def on_the_chart() -> Iterator[None]:
    """Knodel is a release of the Helm chart until the end of the block. `python -m tests.testbed tools` builds Helm."""
    with (
        tempfile.TemporaryDirectory() as folder,
        helm_on_the_testbed(standard().binaries / "helm", find_target(), Path(folder)) as helm,
    ):
        helm.apply("install", CHART, "--take-ownership")
        yield


def run_phases(phases: Sequence[str], processes: int) -> int:
    """Run the phases; return 0 when every test passed."""
    workers = ("--numprocesses", str(processes))
    shared = own = ray = schedulers = helm = exclusive = 0
    if "shared" in phases:
        side_by_side = "not exclusive and not own_replicas and not ray and not schedulers and not helm"
        shared = run("-m", side_by_side, *workers, "--dist", "loadfile", "--no-loadscope-reorder")
    if "own-replicas" in phases:
        own = asyncio.run(run_with_leases_held("-m", "own_replicas", *workers, "--dist", "worksteal"))
    if "ray" in phases:
        ray = run("-m", "ray")
    if "schedulers" in phases:
        schedulers = asyncio.run(run_with_leases_held("-m", "schedulers"))
    if "helm" in phases:
        helm = run("-m", "helm")
    if "exclusive" in phases:
        exclusive = run("-m", "exclusive")
    return shared or own or ray or schedulers or helm or exclusive


if __name__ == "__main__":
    sys.exit(main())
