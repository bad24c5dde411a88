"""The python engine with classes whose methods are async."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from serving.engines.base.engine import Cancellation
from serving.engines.base.errors import Cancelled, InferenceFailed
from serving.engines.python.engine import StreamingPythonEngine
from tests.serving.engines.conftest import ONE, Load, first
from tests.support.wait import eventually

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


@pytest.mark.parametrize(
    ("methods", "waits"),
    [
        (["async def predict(self, x): return x"], True),
        (["async def predict(self, x): yield x"], True),
        (["def predict(self, x): return x", "async def postprocess(self, x): return x"], True),
        (["def predict(self, x): return x"], False),
        (["def predict(self, x): yield x"], False),
        (["async def load(self): pass", "def predict(self, x): return x"], False),
    ],
)
def test_a_model_waits_that_has_an_async_stage(engine: Load, methods: list[str], waits: bool) -> None:
    assert engine("\n    ".join(["class Model:", *methods])).is_async is waits


STUBBORN = """
    import asyncio

    class Model:
        def __init__(self):
            self.inside, self.go = None, None

        async def predict(self, x):
            self.inside, self.go = asyncio.Event(), asyncio.Event()
            self.inside.set()
            while not self.go.is_set():
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    pass
            return x
"""


async def test_an_async_inference_that_goes_on_after_it_was_cancelled_is_waited_for(engine: Load) -> None:
    made = engine(STUBBORN)
    pipeline: Any = made._pipeline
    model = pipeline._predict.__self__
    cancellation = Cancellation()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first, made, ONE, cancellation)
        await eventually(lambda: model.inside is not None and model.inside.is_set())
        cancellation.cancel()
        pipeline._loop.run(asyncio.sleep(0))  # it has been told
        assert not waiting.done()
        pipeline._loop._loop.call_soon_threadsafe(model.go.set)
        assert waiting.result(10).tolist() == [1.0, 2.0]


CLEANING = """
    import asyncio

    class Model:
        def __init__(self):
            self.ended = False

        async def predict(self, x):
            try:
                while True:
                    yield x
                    await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.01)
                self.ended = True
"""


def test_an_async_generator_that_is_cancelled_ends_before_its_caller_goes_on(engine: Load) -> None:
    made = engine(CLEANING)
    assert isinstance(made, StreamingPythonEngine)
    cancellation = Cancellation()
    stream = made.stream(ONE, ["output-0"], cancellation)
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, stream)
        cancellation.cancel()
        with pytest.raises(Cancelled):
            waiting.result(10)
    pipeline: Any = made._pipeline
    assert pipeline._predict.__self__.ended


@pytest.mark.parametrize("call", ["raise SystemExit(3)", "raise KeyboardInterrupt"])
def test_async_code_that_exits_fails_alone(engine: Load, call: str) -> None:
    made = engine(f"""
        class Model:
            async def predict(self, x):
                if x[0] > 0:
                    {call}
                return x
    """)
    with pytest.raises(InferenceFailed, match=r"SystemExit|KeyboardInterrupt"):
        first(made)
    assert first(made, {"input-0": np.zeros(1)}).tolist() == [0.0]
