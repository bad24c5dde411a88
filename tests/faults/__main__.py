"""Run all fault tests and write their table: `python -m tests.faults [--full] [--testbed] [--rows K8 C1 …]`.

Exits with 1 when a test failed or when none of a row ran.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.faults.results import Result, merged, read, write
from tests.faults.table import put_into, table, unproven

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "build" / "faults"
ORACLES = [sys.executable, "-m", "pytest", "--faults", "-m", "not fault"]
"""What looks for damage is looked at first: whether it finds any."""
PYTEST = [sys.executable, "-m", "pytest", "-p", "tests.faults.results", "-m", "fault"]
NOTHING_TO_RUN = 5  # pytest's exit code: none of the rows asked for has a test there
EMBEDDED = ["--faults", "--long", "--timeout", "900", "tests"]
KUBERNETES = ["--cluster", "kubernetes", "--timeout", "600", "tests/contract", "tests/scenarios", "tests/cluster"]


def main() -> int:
    """Run, write, say what is not as it should be."""
    options = arguments()
    if subprocess.run([*ORACLES, "tests/faults"], cwd=ROOT).returncode:
        return 1
    failed = run("embedded", [*EMBEDDED, *(["--full"] if options.full else [])], options.rows)
    if options.testbed:
        subprocess.run([sys.executable, "-m", "tests.testbed", "up", "--knodel", "--eventing"], cwd=ROOT, check=True)
        failed |= run("kubernetes", KUBERNETES, options.rows)
    results = {place: read(RESULTS / f"{place}.jsonl") for place in ("embedded", "kubernetes")}
    PAGE.write_text(put_into(PAGE.read_text(), table(results, machine())))
    print(f"{PAGE.relative_to(ROOT)} is written")
    return report([result for some in results.values() for result in some]) or failed


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="wait in full length")
    parser.add_argument("--testbed", action="store_true", help="the rows of real Kubernetes, too (as root)")
    parser.add_argument(
        "--rows", nargs="*", default=[], help="these alone; the table keeps what was found of the others"
    )
    return parser.parse_args()


def run(place: str, options: list[str], rows: list[str]) -> int:
    """The marked tests of one cluster; their results are kept for the table until the next run there."""
    path = RESULTS / f"{place}.jsonl"
    before = read(path) if rows else []
    wanted = ["--fault-rows", *rows] if rows else []
    code = subprocess.run([*PYTEST, "--fault-results", str(path), *options, *wanted], cwd=ROOT).returncode
    now = read(path)
    path.unlink(missing_ok=True)
    write(path, merged(before, now))
    return int(code not in (0, NOTHING_TO_RUN))


def machine() -> str:
    """What it ran on, in words."""
    linux = platform.release().partition("-")[0]  # what stands behind it may name who built it
    return f"Machine: {os.cpu_count()} cores, Linux {linux}, Python {platform.python_version()}."


def report(results: list[Result]) -> int:
    """Print the rows of which no test ran; 1 if there is any."""
    rows = unproven(results)
    for row in rows:
        print(f"{row.id}: {row.fault}: none of its tests ran")
    return int(bool(rows))


if __name__ == "__main__":
    sys.exit(main())
