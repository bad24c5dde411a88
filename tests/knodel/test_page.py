"""The code of docs/python.md runs in order on a platform."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import knodel
from tests.platform.machine import Machine

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_runs(
    platform: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KNODEL_STATE", str(platform.state))
    names: dict[str, object] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  the page is ours
    shown = capsys.readouterr().out
    assert "input 'input-0' has shape [1, 2]: the model expects [-1, 4]" in shown
    assert "flowers-00001 1 promoted sha256:" in shown
    client = names["client"]
    assert isinstance(client, knodel.Client)
    client.close()


def test_the_page_has_each_error() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Errors")[2]
    errors = {
        name
        for name in knodel.__all__
        if isinstance(made := getattr(knodel, name), type) and issubclass(made, knodel.KnodelError)
    }
    assert not {name for name in errors if f"`{name}`" not in table}
