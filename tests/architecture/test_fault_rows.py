"""Every row of the fault catalogue has a test; every mark names a row."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.catalogue import CATALOGUE, IDS
from tests.faults.table import NO_TEST

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "evidence" / "reliability.md"
MARK = re.compile(r"mark\.fault\(([^)]*)\)")
IN_QUOTES = re.compile(r'"([A-Z]\d+)"')


def marked() -> set[str]:
    files = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    return {row for path in files for mark in MARK.findall(path.read_text()) for row in IN_QUOTES.findall(mark)}


def test_marks_name_rows_of_the_catalogue() -> None:
    assert marked() <= IDS


def test_every_row_has_a_test() -> None:
    assert not IDS - marked(), "no test is marked with these rows of tests/faults/catalogue.toml"


def test_the_page_has_a_line_for_every_row() -> None:
    page = PAGE.read_text()
    missing = [row.id for row in CATALOGUE if f"\n| {row.id} | " not in page]
    assert not missing, f"{PAGE.name} lacks {missing}: `make test-faults` writes it"
    assert NO_TEST not in page
    assert "**failed**" not in page
