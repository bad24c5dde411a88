"""Every row of the catalogue has tests, and every mark names a row."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.doors.catalogue import ROWS, SURFACES
from tests.doors.table import MARK, PAGE, Found, make_page, marked_files


def marked() -> Iterator[str]:
    """Return the keys of the rows in the marks of all tests."""
    for path in marked_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == MARK:
                yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))


def test_every_row_has_a_test_or_a_reason_and_every_mark_a_row() -> None:
    proven = set(marked())
    assert proven - ROWS.keys() == set()
    assert {key for key, row in ROWS.items() if key not in proven and not row.reason} == set()


def test_keys_are_given_once() -> None:
    assert len(ROWS) == sum(len(surface.rows) for surface in SURFACES)


def test_the_page_has_every_row_and_none_is_red() -> None:
    page = PAGE.read_text()
    assert {row.given for row in ROWS.values() if row.given not in page} == set()
    assert page.count("\n| ") - len(SURFACES) == len(ROWS)
    assert "✗ a test fails" not in page


def test_a_row_is_green_by_what_passed_and_red_by_one_that_fails() -> None:
    key = next(iter(ROWS))
    good = Found(Counter(passed=2), {"tests/a/test_b.py"})
    assert "✓ 2 tests in `a/test_b.py`" in make_page({key: good})
    assert "✗ a test fails" in make_page({key: Found(Counter(passed=2, failed=1))})
    assert "✗ no test" in make_page({})
