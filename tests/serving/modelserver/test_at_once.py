"""The number of concurrent inferences: all slots for a model that waits, few threads for one that computes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from serving.modelserver.model_host import MIN_THREADS
from tests.serving.modelserver.client import tensor
from tests.serving.modelserver.conftest import Running, Serve
from tests.serving.modelserver.inside import ASYNC, INSIDE, PLAIN, PYTHON, SLOTS, WAITING


async def served(serve: Serve, folder: Path, code: str) -> Running:
    """Start a server of a model with this code."""
    path = folder / "model.py"
    path.write_text(code)
    return await serve(b"", *PYTHON, "--storage-uri", path.as_uri())


async def most_inside(running: Running, expected: int) -> int:
    """Return the maximum number of concurrent inferences."""
    return await INSIDE.most_of(running, partial(running.infer, tensor([1.0])), expected)


@WAITING
async def test_a_model_that_waits_has_as_many_inside_as_there_are_slots(
    serve: Serve, tmp_path: Path, code: str
) -> None:
    assert await most_inside(await served(serve, tmp_path, code), SLOTS) == SLOTS


async def test_a_plain_model_has_a_few_threads_inside(serve: Serve, tmp_path: Path) -> None:
    assert await most_inside(await served(serve, tmp_path, PLAIN), MIN_THREADS) == MIN_THREADS


async def test_threads_that_wait_have_a_bound(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.modelserver.execution.workers.MAX_WAITING", 7)
    assert await most_inside(await served(serve, tmp_path, ASYNC), 7) == 7
