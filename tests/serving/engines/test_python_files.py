"""The files of a Python model: rejected files, and that the verified bytes are those that run."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from serving.engines.base.engine import EngineOptions
from serving.engines.base.errors import LoadFailed
from serving.engines.base.registry import find_format, find_loader
from serving.engines.python.engine import load
from serving.storage.base import digest as digests
from serving.storage.fetch import fetch
from tests.serving.engines.conftest import ALLOWED, Load, first


def test_code_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise SystemExit('ran')")
    with pytest.raises(LoadFailed, match=r"knodel\.dev/allow-code.*--allow-code"):
        find_loader(find_format("python", []))(fetch(tmp_path.as_uri(), "", tmp_path, frozenset()), EngineOptions())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import missing_module_of_nobody", r"model\.py line 1: ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("x = 1", "0 classes"),
        ("class A:\n    def predict(self, x): ...\nclass B(A): ...", "2 classes"),
        ("class Model:\n    def __init__(self, path): ...", r"Model\(\) failed: TypeError"),
        (
            "class Model:\n    def load(self):\n        open('weights.bin')\n    def predict(self, x): ...",
            r"line 3: File",
        ),
        ("class Model:\n    predict = 3", "not a method"),
        ("class Model: ...", "no method predict"),
        ("class Model:\n    def predict(self): ...", "neither"),
        ("class Model:\n    inputs = [{'name': 'x'}]\n    def predict(self, x): ...", "datatype"),
        ("class Model:\n    inputs = [{'name': 'x', 'datatype': 'FP8'}]\n    def predict(self, x): ...", "FP8"),
        ("class Model:\n    outputs = []\n    def predict(self, x): ...", "empty"),
    ],
)
def test_a_class_that_cannot_be_served_is_refused_in_one_line_without_places(
    engine: Load, tmp_path: Path, code: str, words: str
) -> None:
    threads = threading.active_count()
    with pytest.raises(LoadFailed, match=words) as error:
        engine(code)
    assert "\n" not in str(error.value) and str(tmp_path) not in str(error.value)
    assert not any(str(tmp_path) in path for path in sys.path)
    assert threading.active_count() == threads


def test_the_verified_bytes_run_and_the_folder_stays_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.py").write_text("from .beside import predict\nclass Model:\n    predict = staticmethod(predict)")
    (folder / "beside.py").write_text("def predict(x): return x + 1")
    names = sorted(path.name for path in folder.iterdir())
    hashes = {name: digests.of_bytes((folder / name).read_bytes()) for name in names}
    artifact = fetch(folder.as_uri(), digests.of_folder(hashes), tmp_path, frozenset())
    made = load(artifact, ALLOWED)
    (folder / "beside.py").write_text("changed")
    try:
        assert first(made).tolist() == [2.0, 3.0]
    finally:
        made.close()
    for digest in ("", digests.of_folder(hashes)):
        (folder / "beside.py").write_text("def predict(x): return x + 1")
        load(fetch(folder.as_uri(), digest, tmp_path, frozenset()), ALLOWED).close()
        assert sorted(path.name for path in folder.iterdir()) == names


def test_code_that_is_imported_late_leaves_no_bytecode_either(engine: Load, tmp_path: Path) -> None:
    made = engine(
        """
        class Model:
            def predict(self, x):
                from .late import add
                return add(x)
        """,
        late="def add(x): return x + 1",
    )
    assert first(made).tolist() == [2.0, 3.0]
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_single_file_of_any_name_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "download"
    path.write_text("class Model:\n    def predict(self, x):\n        return 2 * x")
    made = load(fetch(path.as_uri(), "", tmp_path, frozenset()), ALLOWED)
    assert first(made).tolist() == [2.0, 4.0]
    made.close()
