"""The source of a class, with what it uses, is a module that the Python engine loads."""

from __future__ import annotations

import linecache
import subprocess
import sys
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.special

from knodel.saving.class_source import global_names
from knodel.saving.errors import NotSaved
from knodel.saving.save import save
from serving.engines.base.engine import EngineOptions
from serving.engines.python.engine import load
from serving.storage.base.artifact import Artifact
from tests.support import tabular

FACTOR = {"double": 2, "triple": 3}
WEIGHTS = np.array([1.0, 2.0])


def scaled(values: Any, name: str) -> Any:
    return values * FACTOR[name]


class Base:
    inputs = [{"name": "x", "datatype": "FP64", "shape": [-1]}]  # noqa: RUF012  as users write it

    def start(self) -> float:
        return sqrt(4) + float(scipy.special.expit(0))


class Doubler(Base):
    """A model with a base class, a function and a constant beside it."""

    def predict(self, x: np.ndarray[Any, Any]) -> Any:
        FACTOR_LOCALLY = 1  # a local name is none of the module
        return scaled(np.asarray(x), "double") * FACTOR_LOCALLY + self.start()


class Weighted:
    def predict(self, x: Any) -> Any:
        return x * WEIGHTS


class Testing:
    def predict(self, x: Any) -> Any:
        return tabular.iris()


@dataclass
class Settings:
    factor: int = 2


class Configured:
    def predict(self, x: Any) -> Any:
        return x * Settings().factor


class Sized:
    def __init__(self, size: int) -> None:
        self.size = size

    def predict(self, x: Any) -> Any:
        return x * self.size


class Stateful:
    size = 1

    def predict(self, x: Any) -> Any:
        return x * self.size


class Undeclared:
    inputs = [{"name": "x", "datatype": "FP99"}]  # noqa: RUF012  as users write it

    def predict(self, x: Any) -> Any:
        return x


def local() -> type:
    class Inner:
        def predict(self, x: Any) -> Any:
            return x

    return Inner


def stateful() -> Stateful:
    made = Stateful()
    made.size = 3
    return made


def test_a_class_is_saved_with_what_it_uses(tmp_path: Path) -> None:
    saved = save(Doubler, tmp_path / "m", example=[1.0, 2.0], allow_code=True)

    assert (saved.model_format, saved.runs_code) == ("python", True)
    text = (saved.path / "model.py").read_text()
    assert "WEIGHTS" not in text
    assert "FACTOR = {'double': 2, 'triple': 3}" in text
    engine = load(Artifact(saved.path, None), EngineOptions(allow_code=True))
    assert saved.inputs == engine.signature.inputs
    (result,) = engine.infer({"x": np.array([1.0, 2.0])}, ["output-0"])
    assert result.tolist() == Doubler().predict(np.array([1.0, 2.0])).tolist()
    engine.close()


def test_an_instance_without_state_is_its_class(tmp_path: Path) -> None:
    first, second = (save(obj, tmp_path / name, allow_code=True) for obj, name in ((Doubler, "1"), (Doubler(), "2")))
    assert (first.path / "model.py").read_bytes() == (second.path / "model.py").read_bytes()


@pytest.mark.parametrize(("obj", "reason"), [
    (Weighted, r"class Weighted uses WEIGHTS, which is a ndarray in memory: save it to a file and read it in load\("),
    (Testing, "class Testing uses the module tests.support.tabular, which is a file of this machine: write a folder"),
    (Configured, "class Settings has no method of its own, which its source is found by: define one in it"),
    (Sized, r"Sized\(\) needs arguments, and the server has none: set the values in load\(self\)"),
    (stateful(), r"the Stateful has values \(size\) that the source of its class does not contain: give the class"),
    (local(), "Inner is defined inside a function: define it at the top of a module or of a cell"),
    (Undeclared, "class Undeclared: inputs: 'x' has datatype 'FP99'"),
    (type("Typed", (), {}), "type tests Typed cannot be saved: .* classes with predict"),
])  # fmt: skip
def test_a_class_that_is_more_than_its_source_is_refused(obj: object, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match=reason):
        save(obj, tmp_path / "m", allow_code=True)
    assert not list(tmp_path.iterdir())


def test_code_needs_consent(tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match="class Doubler is code, which the server would run: allow it with allow_"):
        save(Doubler, tmp_path / "m")


def test_a_class_without_source_is_refused(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class Typed:\n    def predict(self, x): return x", namespace)  # noqa: S102  as a user may do
    with pytest.raises(NotSaved, match="Typed has no source here, or it has changed: define it in a file"):
        save(namespace["Typed"], tmp_path / "m", allow_code=True)


def test_a_class_of_a_notebook_takes_its_parts_from_several_cells(tmp_path: Path) -> None:
    cells = [
        "import numpy as np\nrate = 2.5",
        "class Rated:\n    def predict(self, x):\n        return np.multiply(x, rate)",
    ]
    session: dict[str, Any] = {"__name__": "__main__"}
    for number, text in enumerate(cells):  # as IPython does: each cell is a file in the cache of lines
        file = f"/tmp/ipykernel_1/{number}.py"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec", dont_inherit=True), session)  # noqa: S102  as IPython does

    made = save(session["Rated"], tmp_path / "m", allow_code=True).path / "model.py"

    assert made.read_text() == dedent("""\
        import numpy as np


        rate = 2.5


        class Rated:
            def predict(self, x):
                return np.multiply(x, rate)


        Model = Rated
        """)


def test_the_module_does_not_run_the_script_that_defines_the_class(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        dedent("""
        import sys
        from knodel.saving.save import save
        class Model:
            def predict(self, x):
                return x
        save(Model, sys.argv[1], allow_code=True)
        """)
    )
    script = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "m")]
    subprocess.run(script, check=True, cwd=Path(__file__).parents[3], env={"PYTHONPATH": "."})
    assert "save" not in (tmp_path / "m" / "model.py").read_text()


@pytest.mark.parametrize(("text", "names"), [
    ("class A:\n  def predict(self, x):\n    y = x\n    return np.sum(y) + y", ["np"]),
    ("@decorate\ndef f(a=default): return [g(b) for b in a if len(b)]", ["decorate", "default", "g"]),
    ("class A(Base):\n  size = SIZE\n  def predict(self, x):\n    def inner(): return x + size\n    return inner", [
        "Base", "SIZE", "size",
    ]),
    ("class A:\n  def f(self): return A()", []),
])  # fmt: skip
def test_global_names_are_found_by_scope(text: str, names: list[str]) -> None:
    assert global_names(text) == names
