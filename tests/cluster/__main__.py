"""`python -m tests.cluster [--workers N] [--again]`: run contract, scenarios and cluster tests on a real cluster.

Most tests work in namespaces of their own, so N processes run them side by side; the tests that need the cluster for
themselves follow, one after another. `--again` runs what failed last time, one after another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

FOLDERS = ("tests/contract", "tests/scenarios", "tests/cluster")
PYTEST = (sys.executable, "-m", "pytest", "--cluster", "kubernetes", "--timeout", "600", "--durations", "20")
AGAIN = ("--last-failed", "--last-failed-no-failures", "all")


def run(*options: str) -> int:
    """Run pytest with `options` over all folders; its exit code."""
    return subprocess.run([*PYTEST, *options, *FOLDERS], check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name; 0 when every test passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.split(": ")[1])
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="processes for tests that share the cluster"
    )
    parser.add_argument("--again", action="store_true", help="run only what failed last time, one after another")
    given = parser.parse_args(arguments)
    if given.again:
        return run(*AGAIN)
    shared = run("-m", "not exclusive", "--numprocesses", str(given.workers), "--dist", "loadfile")
    return run("-m", "exclusive") or shared


if __name__ == "__main__":
    sys.exit(main())
