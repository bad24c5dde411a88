"""The python engine with classes as users write them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from serving.engines.base import Cancellation, EngineOptions, TensorSpec
from serving.engines.datatypes import Tensor
from serving.engines.errors import Cancelled, InferenceFailed, InputRefused, LoadFailed
from serving.engines.python import PythonEngine, StreamingPythonEngine, load
from serving.engines.registry import find_format, loader_of
from serving.engines.warmup import warm_up
from serving.storage import digest as digests
from serving.storage.fetch import fetch

ALLOWED = EngineOptions(allow_code=True)
ONE = {"input-0": np.array([1.0, 2.0])}
FP32 = '[{"name": "x", "datatype": "FP32", "shape": [-1]}]'
Load = Callable[..., PythonEngine]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Load]:
    """Load a `model.py` of this text, with other files beside it."""
    loaded: list[PythonEngine] = []

    def make(code: str, **beside: str) -> PythonEngine:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "model.py").write_text(dedent(code))
        for name, text in beside.items():
            (folder / f"{name}.py").write_text(dedent(text))
        loaded.append(load(fetch(folder.as_uri(), "", tmp_path, frozenset()), ALLOWED))
        return loaded[-1]

    yield make
    for one in loaded:
        one.close()


def first(engine: PythonEngine, inputs: dict[str, Tensor] = ONE, cancellation: Cancellation | None = None) -> Tensor:
    """The first output for `inputs`."""
    return engine.infer(inputs, [engine.signature.outputs[0].name], cancellation)[0]


DOUBLE = """
    class Model:
        def predict(self, x):
            return 2 * x
"""


def test_a_class_with_predict_is_a_model_of_one_input_and_output(engine: Load) -> None:
    made = engine(DOUBLE)
    assert made.signature.platform == "python"
    assert made.signature.inputs == (TensorSpec("input-0", "FP64", None),)
    assert made.signature.outputs == (TensorSpec("output-0", "FP64", None),)
    assert first(made).tolist() == [2.0, 4.0]
    assert warm_up(made) is not None
    assert not made.bounded and not hasattr(made, "stream")


def test_code_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("raise SystemExit('ran')")
    with pytest.raises(LoadFailed, match=r"knodel\.dev/allow-code.*--allow-code"):
        loader_of(find_format("python", []))(fetch(tmp_path.as_uri(), "", tmp_path, frozenset()), EngineOptions())


def test_what_the_class_declares_is_its_signature_and_comes_by_name(engine: Load) -> None:
    made = engine("""
        class Model:
            inputs = [{"name": "a", "datatype": "FP32", "shape": [-1, 2]}, {"name": "b", "datatype": "INT64"}]
            outputs = [{"name": "sum", "datatype": "FP32", "shape": [-1]}, {"name": "count", "datatype": "INT32"}]

            def predict(self, b, a):
                return {"count": len(a), "sum": a.sum(axis=1) + b}
    """)
    assert made.signature.inputs == (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", None))
    inputs = {"a": np.ones((2, 2), np.float32), "b": np.array([1, 2])}
    total, count = made.infer(inputs, ["sum", "count"])
    assert (total.tolist(), str(total.dtype), count.tolist(), str(count.dtype)) == ([3, 4], "float32", 2, "int32")
    assert [tensor.tolist() for tensor in made.infer(inputs, ["count"])] == [2]


def test_several_inputs_come_as_a_dict_to_who_does_not_name_them(engine: Load) -> None:
    made = engine("""
        class Model:
            inputs = [{"name": "in-a", "datatype": "FP64"}, {"name": "in-b", "datatype": "FP64"}]

            def predict(self, tensors):
                return tensors["in-a"] - tensors["in-b"]
    """)
    assert first(made, {"in-b": np.array([1.0]), "in-a": np.array([3.0])}).tolist() == [2.0]


def test_load_preprocess_and_postprocess_are_called_and_may_declare(engine: Load) -> None:
    made = engine(
        """
        import helpers
        from .helpers import FACTOR

        class Classifier:
            def __init__(self):
                self.labels = None

            def load(self, folder):
                self.labels = (folder / "helpers.py").read_text().count("FACTOR") * ["label"]
                self.outputs = [{"name": "labels", "datatype": "BYTES", "shape": [-1]}]

            def preprocess(self, x):
                return x * FACTOR, helpers.FACTOR

            def predict(self, pair):
                return pair[0] + pair[1]

            def postprocess(self, y):
                return [f"{self.labels[0]} {value:g}" for value in y]
        """,
        helpers="FACTOR = 10",
    )
    assert first(made).tolist() == ["label 20", "label 30"]
    made.close()
    assert "helpers" not in sys.modules and not any(str(path).endswith("/model") for path in sys.path)


def test_arrays_may_be_changed_and_texts_are_bytes_however_they_came(engine: Load) -> None:
    made = engine("""
        class Model:
            inputs = [{"name": "x", "datatype": "FP32"}, {"name": "t", "datatype": "BYTES"}]
            outputs = [{"name": "t", "datatype": "BYTES"}]

            def predict(self, x, t):
                x += 1
                return [item + b"!" for item in t]
    """)
    given = np.frombuffer(np.ones(2, np.float32).tobytes(), np.float32)
    assert first(made, {"x": given, "t": np.array(["Ü", b"b"], dtype=object)}).tolist() == ["Ü".encode() + b"!", b"b!"]


ASYNC = """
    import asyncio

    class Model:
        async def load(self):
            self.both = asyncio.Barrier(2)

        def preprocess(self, x):
            return x, asyncio.get_running_loop()

        async def predict(self, pair):
            x, loop = pair
            assert loop is asyncio.get_running_loop()
            await self.both.wait()
            return 2 * x
"""


def test_async_stages_run_side_by_side_on_one_loop(engine: Load) -> None:
    made = engine(ASYNC)
    with ThreadPoolExecutor(2) as pool:  # each waits for the other
        answers = pool.map(lambda number: first(made, {"input-0": np.array([number])}).tolist(), [1.0, 2.0])
    assert list(answers) == [[2.0], [4.0]]


def test_an_async_inference_ends_when_it_is_cancelled(engine: Load) -> None:
    made = engine(ASYNC)
    cancellation = Cancellation()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first, made, ONE, cancellation)  # nobody else comes to the barrier
        cancellation.cancel()
        with pytest.raises(Cancelled):
            waiting.result(10)


GENERATORS = {
    "plain": "for word in text: yield word",
    "async": "for word in text: yield await self.same(word)",
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_is_streamed_part_by_part_or_joined(engine: Load, kind: str) -> None:
    made = engine(f"""
        class Model:
            inputs = [{{"name": "text", "datatype": "BYTES", "shape": [-1]}}]
            outputs = [{{"name": "words", "datatype": "BYTES"}}]

            async def same(self, word):
                return word

            def preprocess(self, text):
                return [word for item in text for word in item.split()]

            {"async " if kind == "async" else ""}def predict(self, text):
                {GENERATORS[kind]}

            def postprocess(self, word):
                return [word.upper()]
    """)
    assert isinstance(made, StreamingPythonEngine)
    inputs = {"text": np.array([b"to be", b"or not"], dtype=object)}
    parts = [part[0].tolist() for part in made.stream(inputs, ["words"])]
    assert parts == [[b"TO"], [b"BE"], [b"OR"], [b"NOT"]]
    assert first(made, inputs).tolist() == [b"TO", b"BE", b"OR", b"NOT"]
    with pytest.raises(InferenceFailed, match="nothing"):
        first(made, {"text": np.array([], dtype=object)})


ENDLESS = """
    class Model:
        def __init__(self):
            self.ended = 0

        def predict(self, x):
            try:
                while True:
                    yield x
            finally:
                self.ended += 1
"""


def test_a_stream_ends_when_it_is_cancelled_or_left(engine: Load) -> None:
    made = engine(ENDLESS)
    assert isinstance(made, StreamingPythonEngine)
    cancellation = Cancellation()
    stream = made.stream(ONE, ["output-0"], cancellation)
    assert next(stream)[0].tolist() == [1.0, 2.0]
    cancellation.cancel()
    with pytest.raises(Cancelled):
        next(stream)
    left = made.stream(ONE, ["output-0"])
    next(left)
    left.close()
    assert next(made.stream(ONE, ["output-0"]))  # it is free again


def test_an_answer_of_endless_parts_is_refused(engine: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engines.python.LARGEST_JOINED", 1000)
    with pytest.raises(InferenceFailed, match="stream"):
        first(engine(ENDLESS))


COUNTING = """
    import threading

    class Model:
        thread_safe = {safe}

        def __init__(self):
            self.both = threading.Barrier(2)

        def predict(self, x):
            try:
                self.both.wait({patience})
            except threading.BrokenBarrierError:
                self.both.reset()
                return x
            return x + 1
"""


def test_plain_methods_are_called_by_one_thread_at_a_time_unless_the_class_allows_more(
    engine: Load, tmp_path: Path
) -> None:
    inputs = {"input-0": np.zeros(1)}
    with ThreadPoolExecutor(2) as pool:
        alone = engine(COUNTING.format(safe=False, patience=0.05))
        assert [answer.tolist() for answer in pool.map(lambda _: first(alone, inputs), range(2))] == [[0.0], [0.0]]
        (tmp_path / "model").rename(tmp_path / "former")
        together = engine(COUNTING.format(safe=True, patience=10))
        assert [answer.tolist() for answer in pool.map(lambda _: first(together, inputs), range(2))] == [[1.0], [1.0]]


def test_who_is_cancelled_while_it_waits_for_its_turn_is_never_run(engine: Load) -> None:
    made = engine("""
        import threading

        class Model:
            def __init__(self):
                self.inside, self.go, self.calls = threading.Event(), threading.Event(), 0

            def predict(self, x):
                self.calls += 1
                self.inside.set()
                self.go.wait(10)
                return [self.calls]
    """)
    model = made._pipeline._stages.predict.__self__  # type: ignore[attr-defined]
    cancellation = Cancellation()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(first, made)
        assert model.inside.wait(10)
        waiting = pool.submit(first, made, ONE, cancellation)
        cancellation.cancel()
        model.go.set()
        with pytest.raises(Cancelled):
            waiting.result(10)
        assert running.result(10).tolist() == [1.0]
    assert model.calls == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('/secret')", "ValueError: /secret"),
        ("raise SystemExit(3)", "SystemExit"),
        ("return 'text'", "declared is FP64"),
        ("return {'other': x}", "no output 'output-0'"),
        ("return None", "declared is FP64"),
        ("return [[1], [1, 2]]", "ValueError"),
    ],
)
def test_what_goes_wrong_in_the_code_is_the_models_fault(engine: Load, body: str, words: str) -> None:
    made = engine(f"""
        class Model:
            def predict(self, x):
                {body}
    """)
    for _ in range(2):  # the first leaves nothing locked
        with pytest.raises(InferenceFailed, match=words):
            first(made)


def test_the_code_can_say_that_the_input_is_to_blame(engine: Load) -> None:
    made = engine("""
        from serving.engines.errors import InputRefused

        class Model:
            def predict(self, x):
                raise InputRefused("no such word")
    """)
    with pytest.raises(InputRefused):
        first(made)


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("INT32", "[1, 2]", [1, 2]),
        ("UINT8", "[1, 255]", [1, 255]),
        ("UINT8", "[1, 256]", "beyond UINT8"),
        ("INT32", "[1.5]", "declared is INT32"),
        ("FP32", "[1, 2.5]", [1, 2.5]),
        ("BOOL", "[1]", "declared is BOOL"),
        ("BYTES", "['a', b'b']", ["a", b"b"]),
        ("BYTES", "['a', 1]", "no text"),
        ("FP32", "[[1.0]]", r"shape \[1, 1\]"),
    ],
)
def test_an_answer_is_what_was_declared_or_a_failure(
    engine: Load, datatype: str, value: str, expected: list[object] | str
) -> None:
    made = engine(f"""
        class Model:
            outputs = [{{"name": "y", "datatype": "{datatype}", "shape": [-1]}}]

            def predict(self, x):
                return {value}
    """)
    if isinstance(expected, str):
        with pytest.raises(InferenceFailed, match=expected):
            first(made)
    else:
        assert first(made).tolist() == expected


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
        ("class Model:\n    predict = 3", "no method"),
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


def test_a_single_file_of_any_name_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "download"
    path.write_text(dedent(DOUBLE))
    made = load(fetch(path.as_uri(), "", tmp_path, frozenset()), ALLOWED)
    assert first(made).tolist() == [2.0, 4.0]
    made.close()
