"""Which engine serves what."""

from __future__ import annotations

import subprocess
import sys

import pytest

from serving.engines.errors import MissingEngine, UnknownFormat
from serving.engines.registry import Format, find_format, loader_of


def test_a_format_is_found_by_name_or_by_the_files() -> None:
    assert find_format("onnx", ["anything"]).name == "onnx"
    assert find_format("", ["readme.md", "deep/Model.ONNX"]).name == "onnx"


def test_what_is_not_known_is_refused_with_what_is() -> None:
    with pytest.raises(UnknownFormat, match="onnx"):
        find_format("pickle", [])
    with pytest.raises(UnknownFormat, match=r"\.onnx"):
        find_format("", ["model.pkl"])


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "colorsys", None)
    with pytest.raises(MissingEngine, match=r"pip install 'knodel\[x\]'"):
        loader_of(Format("x", "colorsys", "colorsys", "x", (".x",)))


def test_choosing_an_engine_imports_none() -> None:
    script = (
        "import sys; from serving.engines.registry import find_format; from serving.server import preload;"
        "find_format('onnx', []); preload(['--format', 'onnx']);"
        "print([name for name in ('onnxruntime', 'numpy', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
