"""`python -m tests.scenarios [embedded] [kubernetes]`: runs every scenario on each cluster and prints one table."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

CLUSTERS = ("embedded", "kubernetes")
FOLDER = Path(__file__).parent
LONGEST = 1800  # s for all scenarios of one cluster

Results = Mapping[str, tuple[str, float]]
"""Scenario → (passed | failed | not here: REASON, seconds)."""


def run(cluster: str) -> Results:
    """Run all scenarios on one cluster; their output goes through."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", str(FOLDER), "--long", "--cluster", cluster, f"--junitxml={report}"]
        subprocess.run(pytest, timeout=LONGEST, check=False)
        return read_report(report.read_text()) if report.exists() else {}


def read_report(text: str) -> Results:
    """The results in a JUnit report of pytest's."""
    cases = ElementTree.fromstring(text).iter("testcase")  # noqa: S314 - our own pytest wrote it a moment ago
    return {case.attrib["name"]: (_outcome(case), float(case.attrib["time"])) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    return "passed" if skipped is None else f"not here: {skipped.attrib.get('message', '')}"


def table(found: Mapping[str, Results]) -> list[str]:
    """One line for each scenario, then the sums."""
    names = list(dict.fromkeys(name for results in found.values() for name in results))
    lines = [f"{'scenario':100} " + " ".join(f"{cluster:>20}" for cluster in found)]
    for name in names:
        cells = (_cell(results.get(name)) for results in found.values())
        lines.append(f"{name.removeprefix('test_').replace('_', ' '):100} " + " ".join(cells))
    sums = (f"{_count(results, 'passed'):>8} of {len(results):<8}" for results in found.values())
    return [*lines, f"{'passed':100} " + " ".join(sums)]


def _cell(result: tuple[str, float] | None) -> str:
    if result is None:
        return f"{'did not run':>20}"
    outcome, seconds = result
    return f"{outcome.partition(':')[0]:>10} {seconds:7.1f} s"


def _count(results: Results, outcome: str) -> int:
    return sum(found == outcome for found, _ in results.values())


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 when no scenario failed and each cluster ran them all."""
    found = {cluster: run(cluster) for cluster in arguments or CLUSTERS}
    print("\n".join(table(found)))
    for cluster, results in found.items():
        for name, (outcome, _) in results.items():
            if outcome.startswith("not here"):
                print(f"{cluster}: {name}: {outcome}")
    return 0 if all(results and not _count(results, "failed") for results in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
