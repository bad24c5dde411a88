"""Limit the length of functions to 80 lines and of files to 500."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("knodel", "clusters", "autoscaler", "eventing", "serving", "loadtests", "tests", "examples")
LINES_OF_A_FUNCTION = 80
LINES_OF_A_FILE = 500


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{path}: {node.name}"
        for path, text in sources()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LINES_OF_A_FUNCTION
    ]
    assert not long


def test_no_file_is_longer_than_can_be_kept_in_mind() -> None:
    long = [path for path, text in sources() if text.count("\n") > LINES_OF_A_FILE]
    assert not long
