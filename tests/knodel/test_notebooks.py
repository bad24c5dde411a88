"""The notebooks of `examples/`: valid, without stored outputs, and with calls that exist. `tests/long` runs them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import nbformat
import pytest

import knodel

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def cells_of(path: Path, type: str = "code") -> list[Any]:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == type]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_has_no_outputs(path: Path) -> None:
    assert not [cell for cell in cells_of(path) if cell.outputs or cell.execution_count is not None]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_calls_of_a_notebook_exist(path: Path) -> None:
    called = set()
    for cell in cells_of(path):
        for node in ast.walk(ast.parse(cell.source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "client":
                method = getattr(knodel.Client, node.func.attr)
                given = [None] * len(node.args), {str(keyword.arg): None for keyword in node.keywords}
                inspect.signature(method).bind(None, *given[0], **given[1])
                called.add(node.func.attr)
    assert {"deploy", "predict", "rollout", "history", "explain"} <= called
