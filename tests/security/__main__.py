"""`make security`: every scanner, what each found that is not explained, and explanations of what is found no more.

Exit code 0 when there is nothing of either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from tests.security import bandit, checkov, semgrep
from tests.security.finding import Explanation, Finding, idle, unexplained

Scan = tuple[str, Callable[[], list[Finding]], Sequence[Explanation]]

SCANS: tuple[Scan, ...] = (
    ("bandit, on the code", bandit.findings, ()),
    ("semgrep, on the code, by tests/security/rules", semgrep.findings, semgrep.EXPLAINED),
    ("checkov, on all Pods and the installation", checkov.findings, checkov.EXPLAINED),
)


def main() -> int:
    """Run all of them and print a line for each, then what has to be done."""
    faults = [f"semgrep's rule {wrong}" for wrong in (*semgrep.without_example(), *semgrep.check_rules())]
    for name, scan, explained in SCANS:
        found = scan()
        wrong, old = unexplained(found, explained), idle(found, explained)
        print(f"{name}: {len(found) - len(wrong)} explained, {len(wrong)} not")
        faults += [*map(str, wrong), *(f"explanation of what is found no more: {one.rule} {one.places}" for one in old)]
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
