"""Run all fault tests and write their table: `python -m tests.faults [--full] [--testbed] [--rows K8 C1 …]`.

Exits with 1 when a test failed or when none of a row ran. What a row lacks for want of a program is said: before, of
the clocks that are set (K9, A7), and of all rows at the end, as in the table.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

from tests.faults.kit.clock import MISSING, library
from tests.faults.results import Result, merged, read, write
from tests.faults.table import left_out, put_into, table, unproven

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "reliability.md"
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
    if library() is None:
        print(f"{MISSING}; without it no process's clock is set, of which rows K9 and A7 will say so", flush=True)
    if subprocess.run([*ORACLES, "tests/faults"], cwd=ROOT).returncode:
        return 1
    failed = run("embedded", [*EMBEDDED, *(["--full"] if options.full else [])], options.rows)
    if options.testbed:
        subprocess.run([sys.executable, "-m", "tests.testbed", "up", "--knodel", "--eventing"], cwd=ROOT, check=True)
        failed |= run("kubernetes", KUBERNETES, options.rows)
    results = {place: read(RESULTS / f"{place}.jsonl") for place in ("embedded", "kubernetes")}
    found, page = [result for some in results.values() for result in some], PAGE.relative_to(ROOT)
    if options.rows and unproven(found):
        print(f"{page} is left as it is: of other rows nothing is known here; `make test-faults` runs all")
    else:
        PAGE.write_text(put_into(PAGE.read_text(), table(results, machine())))
        print(f"{page} is written")
    return report(found, options.rows) or failed


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="wait in full length")
    parser.add_argument("--testbed", action="store_true", help="the rows of real Kubernetes, too (as root)")
    parser.add_argument(
        "--rows", nargs="*", default=[], help="these alone; the table keeps what was found of the others here"
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


def report(results: list[Result], asked: list[str]) -> int:
    """Print what did not run, and the rows (of those `asked` for, if any) of which nothing did; 1 if there is one."""
    for name, reason, number in left_out(results):
        print(f"{name}: {number} of its tests did not run: {reason}")
    rows = [row for row in unproven(results) if not asked or row.id in asked]
    for row in rows:
        print(f"{row.id}: {row.fault}: none of its tests ran")
    return int(bool(rows))


if __name__ == "__main__":
    sys.exit(main())
