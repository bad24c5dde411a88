"""The python engine: declarations, inputs and results of a class, and one call at a time."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.engine import Cancellation, TensorSpec
from serving.engines.base.errors import Cancelled, InferenceFailed, InputRefused
from serving.engines.base.warmup import warm_up
from tests.serving.engines.conftest import ONE, Load, first

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
        ("return 'text'", "declared as FP64"),
        ("return {'other': x}", "no output 'output-0'"),
        ("return None", "declared as FP64"),
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
        from serving.engines.base.errors import InputRefused

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
        ("UINT8", "[1, 256]", "out of the range of UINT8"),
        ("INT32", "[1.5]", "declared as INT32"),
        ("FP32", "[1, 2.5]", [1, 2.5]),
        ("FP32", "[1, float('inf')]", [1, np.inf]),
        ("FP32", "[1, 1e300]", "out of the range of FP32"),
        ("BOOL", "[1]", "declared as BOOL"),
        ("BYTES", "['a', b'b']", ["a", b"b"]),
        ("BYTES", "['a', 1]", "not strings"),
        ("FP32", "[[1.0]]", r"shape \[1, 1\]"),
    ],
)
@pytest.mark.fault("M4")
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
