"""Run every test that proves a row of the catalogue, and write what came of it into `docs/evidence/bad-input.md`.

    python -m tests.doors.table [--check]

With `--check` it only says whether the page has the rows of the catalogue. Exit code 1 when a row is not green.
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

What comes in at each surface, and what it gets. Every refusal names the cause and changes nothing: at
the doors of the platform the tests compare all objects and the names of all files before and after, and look for
tracebacks in the log. `make bad-input` runs them and writes this page; the catalogue is `tests/doors/catalogue.py`,
and a test says `@pytest.mark.bad_input("row")` of the rows that it proves.

Random input is sent to the same doors by `make fuzz` (`tests/fuzz`), for a second in the everyday tests.
"""


@dataclass(slots=True)
class Found:
    """What became of the tests of one row: how many by outcome, and in which files they stand."""

    outcomes: Counter[str] = field(default_factory=Counter)
    files: set[str] = field(default_factory=set)

    @property
    def is_green(self) -> bool:
        """Whether some test proved it and none failed."""
        return bool(self.outcomes["passed"]) and not self.outcomes["failed"]


class Collector:
    """A plugin of pytest that notes outcomes by row."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = defaultdict(Found)
        self._rows: dict[str, Sequence[str]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests that prove some row."""
        chosen = [item for item in items if rows_of(item)]
        config.hook.pytest_deselected(items=[item for item in items if not rows_of(item)])
        items[:] = chosen
        self._rows = {item.nodeid: rows_of(item) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count each test once: by its call, or by what failed or was skipped before."""
        if report.when != "call" and report.passed:
            return
        for row in self._rows[report.nodeid]:
            self.found[row].outcomes[report.outcome] += 1
            self.found[row].files.add(report.nodeid.partition("::")[0])


def marked_files() -> Sequence[Path]:
    """The files of tests in which some test says that it proves a row."""
    return [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if f"mark.{MARK}(" in path.read_text()]


def rows_of(item: pytest.Item) -> Sequence[str]:
    """The rows that a test says it proves."""
    return [str(row) for mark in item.iter_markers(MARK) for row in mark.args]


def make_page(found: Mapping[str, Found]) -> str:
    """The page, of what was found by row. Pure."""
    parts = [HEAD]
    for surface in SURFACES:
        lines = [f"## {surface.name}", "", f"Doors: {surface.doors}.", ""]
        lines += ["| Bad input | Answer | Learned from | Seen |", "|---|---|---|---|"]
        lines += [_line(row, found.get(row.key, Found())) for row in surface.rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(row: Row, found: Found) -> str:
    if found.is_green:
        files = ", ".join(f"`{name.removeprefix('tests/')}`" for name in sorted(found.files))
        seen = f"✓ {found.outcomes['passed']} tests in {files}"
    else:
        seen = f"✗ {row.reason or 'not proven'}" if not found.outcomes["failed"] else "✗ a test fails"
    return f"| {row.given} | {row.answer} | {row.learned_from} | {seen} |"


def _is_settled(row: Row, found: Found) -> bool:
    return found.is_green or bool(row.reason and not found.outcomes["failed"])


def main() -> int:
    """Run the tests, write the page."""
    collector = Collector()
    code = pytest.main(["-q", "--long", "-m", MARK, *map(str, marked_files())], plugins=[collector])
    PAGE.write_text(make_page(collector.found))
    rows = [row for surface in SURFACES for row in surface.rows]
    open_rows = [row.given for row in rows if not _is_settled(row, collector.found[row.key])]
    print("\n".join([f"{PAGE.relative_to(ROOT)} is written", *(f"not green: {given}" for given in open_rows)]))
    return int(bool(open_rows) or code != pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
