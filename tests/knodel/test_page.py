"""The Python code of pages runs in order on a platform."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import knodel
from tests.platform.machine import Machine
from tests.support import models, small_gguf

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
ROWS = models.model(
    [models.node("Mul", ["x", "factor"], ["y"])],
    [models.value("x", models.FLOAT, ["n", 4])],
    [models.value("y", models.FLOAT, ["n", 4])],
    [models.floats("factor", [2])],
)
"""A model of rows with four numbers."""
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_code(page: Path, given: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Run the blocks of a page like cells of a notebook, with another port of the gateway; return their names."""
    names: dict[str, Any] = {"__name__": "page", **given}
    text = page.read_text(encoding="utf-8").replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    for number, block in enumerate(BLOCK.findall(text)):
        cell = f"<{page.name} {number}>"
        linecache.cache[cell] = (len(block), None, block.splitlines(keepends=True), cell)  # for inspect.getsource
        exec(compile(block, cell, "exec"), names)  # noqa: S102  the page is ours
    return names


@pytest.fixture
def here(platform: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Provide the working directory of a user whose command finds the platform."""
    monkeypatch.setenv("KNODEL_STATE", str(platform.state))
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@contextmanager
def chatting(name: str) -> Iterator[None]:
    """Serve a small language model under this name."""
    small_gguf.write("small.gguf")
    with knodel.Client() as client:
        client.deploy("small.gguf", name, llm={"contextLength": 128})
        yield
        client.delete(name)


def test_the_code_of_the_page_runs(platform: Machine, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chatting("llm"):
        names = run_code(PAGE, {}, platform.port)
    shown = capsys.readouterr().out
    assert "input 'input-0' has shape [1, 2]: the model expects [-1, 4]" in shown
    assert "flowers-00001 1 promoted sha256:" in shown
    assert "100 Promoted" in shown
    client = names["client"]
    assert isinstance(client, knodel.Client)
    client.close()


def test_the_sdks_work_as_the_page_of_language_models_shows(
    platform: Machine, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chatting("assistant"):
        run_code(ROOT / "docs" / "llm.md", {}, platform.port)
    assert capsys.readouterr().out


@pytest.fixture
def iris(here: Path) -> Iterator[dict[str, Any]]:
    """Provide the file and the objects that a first page names, and no Model `iris` after the test."""
    (here / "iris.onnx").write_bytes(ROWS)
    X, y = load_iris(return_X_y=True)
    yield {"X": X, "trained": LogisticRegression(max_iter=1000).fit(X, y)}
    with knodel.Client() as client:
        client.delete("iris")


@pytest.mark.parametrize(("page", "rows"), [("README.md", 150), ("docs/package.md", 1)])
def test_the_code_of_a_first_page_runs(platform: Machine, iris: dict[str, Any], page: str, rows: int) -> None:
    names = run_code(ROOT / page, iris, platform.port)
    assert len(names["answer"].to_numpy()) == rows
    names["client"].close()


def test_the_page_has_each_error() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Errors")[2]
    errors = {
        name
        for name in knodel.__all__
        if isinstance(made := getattr(knodel, name), type) and issubclass(made, knodel.KnodelError)
    }
    assert not {name for name in errors if f"`{name}`" not in table}
