"""Run the tests of the catalogue of bad input and write the results to `docs/evidence/bad-input.md`.

    python -m tests.doors.table

Exit code 1 when a row has no passing test, or a test fails.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.doors.catalogue import SURFACES, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence" / "bad-input.md"
MARK = "bad_input"
HEAD = """# Bad input

The responses of Knodel to invalid and hostile input, by surface. Every rejection names its cause and changes nothing:
the tests of the platform compare all objects and file names before and after a request, and search the log for
tracebacks. `make bad-input` runs the tests and writes this page. The catalogue is `tests/doors/catalogue.py`; a test of
a row is marked `@pytest.mark.bad_input("row")`.

`make fuzz` (`tests/fuzz`) sends random input to the same surfaces; the everyday tests run it for a second.
"""


@dataclass(slots=True)
class Found:
    """The results of the tests of one row: their number by outcome, and their files."""

    outcomes: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)

    @property
    def is_green(self) -> bool:
        """Whether at least one test passed and none failed."""
        return bool(self.outcomes["passed"]) and not self.outcomes["failed"]


class Collector:
    """A pytest plugin that counts outcomes by row."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = defaultdict(Found)
        self._rows: dict[str, Sequence[str]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Select the tests that are marked with a row."""
        chosen = [item for item in items if rows_of(item)]
        config.hook.pytest_deselected(items=[item for item in items if not rows_of(item)])
        items[:] = chosen
        self._rows = {item.nodeid: rows_of(item) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count each test once: its call, or its setup when that failed or was skipped."""
        if report.when != "call" and report.passed:
            return
        for row in self._rows[report.nodeid]:
            self.found[row].outcomes[report.outcome] += 1
            self.found[row].files.add(report.nodeid.partition("::")[0])


def marked_files() -> Sequence[Path]:
    """Return the test files with a marked test."""
    return [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if f"mark.{MARK}(" in path.read_text()]


def rows_of(item: pytest.Item) -> Sequence[str]:
    """Return the keys of the rows that a test is marked with."""
    return [str(row) for mark in item.iter_markers(MARK) for row in mark.args]


def make_page(found: Mapping[str, Found]) -> str:
    """Return the page from the results by row."""
    parts = [HEAD]
    for surface in SURFACES:
        lines = [f"## {surface.name}", "", f"Entry points: {surface.doors}.", ""]
        lines += ["| Bad input | Response | Known from | Tests |", "|---|---|---|---|"]
        lines += [_line(row, found.get(row.key, Found())) for row in surface.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(row: Row, found: Found) -> str:
    if found.is_green:
        files = ", ".join(f"`{name.removeprefix('tests/')}`" for name in sorted(found.files))
        seen = f"✓ {found.outcomes['passed']} test{'s' * (found.outcomes['passed'] > 1)} in {files}"
    else:
        seen = f"✗ {row.reason or 'no test'}" if not found.outcomes["failed"] else "✗ a test fails"
    return f"| {row.given} | {row.answer} | {row.learned_from} | {seen} |"


def _is_settled(row: Row, found: Found) -> bool:
    return found.is_green or bool(row.reason and not found.outcomes["failed"])


def main() -> int:
    """Run the tests and write the page. Return the exit code."""
    collector = Collector()
    code = pytest.main(["-q", "--long", "-m", MARK, *map(str, marked_files())], plugins=[collector])
    PAGE.write_text(make_page(collector.found))
    rows = [row for surface in SURFACES for row in surface.rows]
    open_rows = [row.given for row in rows if not _is_settled(row, collector.found[row.key])]
    print("\n".join([f"{PAGE.relative_to(ROOT)} is written", *(f"not passed: {given}" for given in open_rows)]))
    return int(bool(open_rows) or code != pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
