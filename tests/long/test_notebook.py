"""The notebook of `examples/`, run from the first to the last cell on a platform of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.platform.machine import Machine

NOTEBOOK = Path(__file__).parents[2] / "examples" / "churn.ipynb"
LONGEST = 60  # s for the whole notebook, as its first cell promises
EXECUTED = "EXECUTED_NOTEBOOK"
"""Environment variable: where to write the executed notebook, to look at it."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.up()
    yield made
    made.run("down")


def outputs_of(cell: Any) -> str:
    """Return the HTML and the text of what a cell shows."""
    found = []
    for output in cell.outputs:
        data = output.get("data", {})
        found += [output.get("text", ""), data.get("text/html", ""), data.get("text/plain", "")]
    return "\n".join(found)


def test_the_notebook_runs_from_training_to_a_judged_rollout(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNODEL_STATE", str(machine.state))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]

    NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()

    if EXECUTED in os.environ:
        nbformat.write(notebook, os.environ[EXECUTED])  # type: ignore[no-untyped-call]
    shown = {cell.source.splitlines()[-1]: outputs_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert "True" in shown['list(answer["output-0"]) == list(first.predict(customers[:5]))']
    assert "True" in shown["step.promoted"]
    assert "Promoted" in shown["step.promoted"]
    assert "durations of the last 50 calls" in shown['client.predict("churn", customers[:5])']
    assert "promoted" in shown['client.history("churn")']
    assert "cold start of churn-00002" in shown['client.explain("churn")']
