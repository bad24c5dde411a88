"""An engine in a process of its own: start, completions, death, restart, end."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.engine import Cancellation, EngineOptions
from serving.engines.base.errors import Cancelled, InferenceFailed, InputRefused, LoadFailed
from serving.engines.upstream.client import NoSuchPage
from serving.engines.upstream.engine import UpstreamEngine
from serving.engines.upstream.usage import TokenUsage
from tests.support.engine_stub.engine import StubProgram
from tests.support.wait import eventually

OPTIONS = EngineOptions(name="m")


@pytest.fixture
def engine() -> Iterator[UpstreamEngine]:
    made = UpstreamEngine(StubProgram(), OPTIONS)
    yield made
    made.close()


def text(value: str) -> dict[str, np.ndarray]:
    return {"text_input": np.array([value], dtype=object)}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def test_a_completion_is_a_tensor(engine: UpstreamEngine) -> None:
    [output] = engine.infer({**text("hello"), "max_tokens": np.array([2])}, ["text_output"])
    assert output.tolist() == ["w0 w1 "]


def test_a_stream_has_one_part_for_each_token(engine: UpstreamEngine) -> None:
    parts = [part[0][0] for part in engine.stream({**text("hello"), "max_tokens": np.array([3])}, ["text_output"])]
    assert parts == ["w0 ", "w1 ", "w2 "]


def test_the_tokens_of_answers_are_counted(engine: UpstreamEngine) -> None:
    engine.infer({**text("hello"), "max_tokens": np.array([2])}, ["text_output"])
    assert engine.tokens.total == TokenUsage(7, 2)
    assert len(list(engine.stream({**text("hello"), "max_tokens": np.array([3])}, ["text_output"]))) == 3
    assert engine.tokens.total == TokenUsage(14, 5)


def test_the_parts_of_a_stream_that_is_not_read_to_its_end_are_its_tokens(engine: UpstreamEngine) -> None:
    parts = engine.stream({**text("x"), "max_tokens": np.array([10**9])}, ["text_output"])
    for _ in range(3):
        next(parts)
    parts.close()  # type: ignore[attr-defined]
    assert engine.tokens.total == TokenUsage(0, 3)


def test_a_page_that_the_engine_lacks_is_told_apart(engine: UpstreamEngine) -> None:
    with pytest.raises(NoSuchPage, match="does not have the page /metrics"):
        engine.page("/metrics")


def test_several_values_for_one_are_refused(engine: UpstreamEngine) -> None:
    with pytest.raises(InputRefused, match="max_tokens has 2 elements"):
        engine.infer({**text("hello"), "max_tokens": np.array([2, 3])}, ["text_output"])


async def test_a_cancelled_stream_ends(engine: UpstreamEngine) -> None:
    cancellation = Cancellation()
    parts = engine.stream({**text("x"), "max_tokens": np.array([10**9])}, ["text_output"], cancellation)
    next(iter(parts))
    cancellation.cancel()
    with pytest.raises(Cancelled):
        for _ in parts:
            pass
    await eventually(lambda: b'"running": 0' in engine.page("/state"))


def test_a_start_that_fails_tells_what_the_program_wrote() -> None:
    program = StubProgram(FAIL="no such weights")
    with pytest.raises(LoadFailed, match="with exit code 1: no such weights"):
        UpstreamEngine(program, OPTIONS)
    assert program.closed


def test_a_program_that_does_not_exist_is_named() -> None:
    class Missing(StubProgram):
        def command(self, socket: Path, key: str):  # type: ignore[no-untyped-def]
            return super().command(socket, key)._replace(argv=["/no/such/engine"])

    with pytest.raises(LoadFailed, match="/no/such/engine cannot be started"):
        UpstreamEngine(Missing(), OPTIONS)


async def test_an_engine_that_dies_is_started_again(engine: UpstreamEngine) -> None:
    first = engine.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: engine.state.address is None or engine.pid != first)
    with pytest.raises(InferenceFailed, match=r"started again|does not answer"):
        engine.infer(text("x"), ["text_output"])
    await eventually(lambda: engine.state.reason == "" and engine.pid not in (first, None), timeout=15)
    assert engine.infer(text("x"), ["text_output"])[0].size == 1


async def test_an_engine_is_started_again_though_the_folder_of_its_socket_was_removed(engine: UpstreamEngine) -> None:
    first, address = engine.pid, engine.state.address
    assert first is not None and address is not None
    shutil.rmtree(address.socket.parent)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: engine.state.reason == "" and engine.pid not in (first, None), timeout=15)
    assert engine.infer(text("x"), ["text_output"])[0].size == 1


async def test_an_engine_that_must_not_be_started_again_is_lost() -> None:
    engine = UpstreamEngine(StubProgram(restarts=False), OPTIONS)
    try:
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        await eventually(lambda: engine.state.lost)
        assert "needs a restart" in engine.state.reason
    finally:
        engine.close()


def test_closing_ends_the_process_and_removes_its_socket() -> None:
    program = StubProgram()
    engine = UpstreamEngine(program, OPTIONS)
    pid, address = engine.pid, engine.state.address
    assert pid is not None
    assert address is not None
    engine.close()
    assert not is_alive(pid)
    assert not address.socket.parent.exists()
    assert program.closed


def test_a_long_path_of_temporary_files_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    engine = UpstreamEngine(StubProgram(), OPTIONS)
    engine.close()
    assert list(long.iterdir()) == []
