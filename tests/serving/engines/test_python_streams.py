"""The python engine with a `predict` that is a generator."""

from __future__ import annotations

import numpy as np
import pytest

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed
from serving.engines.python.engine import StreamingPythonEngine
from tests.serving.engines.conftest import ONE, Load, first

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


LONG_TEXTS = """
    class Model:
        outputs = [{"name": "text", "datatype": "BYTES"}]

        def predict(self, x):
            while True:
                yield ["x" * 1_000_000]
"""


@pytest.mark.parametrize("code", [ENDLESS, LONG_TEXTS])
def test_an_answer_of_endless_parts_is_refused(engine: Load, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr("serving.engines.python.engine.MAX_JOINED", 100_000)
    with pytest.raises(InferenceFailed, match="stream"):
        first(engine(code))


LAST_WORDS = """
    class Model:
        def predict(self, x):
            try:
                while True:
                    yield x
            finally:
                raise SystemExit(3)
"""


def test_a_generator_that_fails_as_it_is_ended_harms_nobody(engine: Load, caplog: pytest.LogCaptureFixture) -> None:
    made = engine(LAST_WORDS)
    assert isinstance(made, StreamingPythonEngine)
    for _ in range(2):
        stream = made.stream(ONE, ["output-0"])
        next(stream)
        stream.close()
    assert caplog.text.count("generator failed: SystemExit: 3") == 2


def test_a_reader_who_stalls_keeps_nobody_out(engine: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engines.base.exclusive_slot.STALL_TIMEOUT", 0.02)
    made = engine(ENDLESS)
    assert isinstance(made, StreamingPythonEngine)
    stalled = made.stream(ONE, ["output-0"])
    next(stalled)
    assert next(made.stream(ONE, ["output-0"]))
    with pytest.raises(InferenceFailed, match="other requests waited"):
        next(stalled)
