"""An engine in a separate process, with a model whose input selects its behaviour."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from serving.engines.base.engine import Cancellation, EngineOptions
from serving.engines.base.errors import Cancelled, EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.base.exclusive_slot import HANG_AFTER
from serving.engines.base.folder import ModelFolder
from serving.engines.base.warmup import warm_up
from serving.engines.child import engine as child
from serving.engines.child.engine import ChildEngine
from serving.storage.base.artifact import Artifact
from tests.serving.engines.child_model import CRASH, EXIT, FAIL, HANG, NONSENSE, REFUSE, SPIN
from tests.support.wait import eventually

MODULE = "tests.serving.engines.child_model"


def started(folder: Path, how: str = "well") -> ChildEngine:
    (folder / "how").write_text(how)
    artifact = Artifact(folder, None, uri="file:///models/m")
    return ChildEngine(MODULE, ModelFolder(artifact), artifact, EngineOptions(threads=3))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ChildEngine]:
    made = started(tmp_path)
    yield made
    made.close()


def ask(engine: ChildEngine, *x: float, cancellation: Cancellation | None = None) -> list[float]:
    (answer,) = engine.infer({"x": np.array(x)}, ["y"], cancellation)
    made: list[float] = answer.tolist()
    return made


def pid_of(engine: ChildEngine) -> int:
    return int(engine.infer({"x": np.ones(1)}, ["pid"])[0])


def test_it_answers_as_the_engine_that_lives_there(engine: ChildEngine) -> None:
    assert engine.signature.platform == "deed"
    assert warm_up(engine) is not None
    assert ask(engine, 1, 2) == [2, 4]
    assert ask(engine) == []
    assert pid_of(engine) != os.getpid()
    large = np.ones(1 << 22)
    np.testing.assert_array_equal(engine.infer({"x": large}, ["y"])[0], 2 * large)


def test_many_threads_each_get_their_own_answer(engine: ChildEngine) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: ask(engine, number), range(64))) == [[2 * number] for number in range(64)]


def test_errors_come_as_what_they_are(engine: ChildEngine) -> None:
    with pytest.raises(InputRefused, match="not this"):
        ask(engine, REFUSE)
    with pytest.raises(InferenceFailed, match="cannot"):
        ask(engine, FAIL)
    assert ask(engine, 1) == [2]


@pytest.mark.parametrize(("deed", "words"), [(CRASH, "by SIGSEGV"), (EXIT, "exit code 3"), (NONSENSE, "invalid")])
@pytest.mark.fault("M4")
def test_a_process_that_ends_costs_one_request_and_is_started_again(engine: ChildEngine, deed: int, words: str) -> None:
    before = pid_of(engine)
    with pytest.raises(InferenceFailed, match=words):
        ask(engine, deed)
    assert ask(engine, 1) == [2]
    assert pid_of(engine) != before


async def test_a_process_that_ended_meanwhile_costs_no_request(engine: ChildEngine) -> None:
    before = pid_of(engine)
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: os.waitid(os.P_PID, before, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    assert ask(engine, 1) == [2]
    assert pid_of(engine) != before


@pytest.mark.fault("M4")
def test_an_inference_that_hangs_is_killed_after_nobody_waits_for_it_any_more(
    engine: ChildEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "HANG_AFTER", 0.05)
    cancellation = Cancellation()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(ask, engine, HANG, cancellation=cancellation)
        cancellation.cancel()
        with pytest.raises(Cancelled):
            hanging.result(10)
        assert ask(engine, 1) == [2]


def test_who_left_long_ago_kills_nobody(engine: ChildEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "HANG_AFTER", 0.0)
    before, cancellation = pid_of(engine), Cancellation()
    assert ask(engine, 1, cancellation=cancellation) == [2]
    cancellation.cancel()
    assert pid_of(engine) == before
    with pytest.raises(Cancelled):
        ask(engine, 1, cancellation=cancellation)


def test_a_signal_for_the_whole_group_does_not_end_it(engine: ChildEngine) -> None:
    before = pid_of(engine)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(before, number)
    assert pid_of(engine) == before


@pytest.mark.parametrize(("how", "words"), [("refused", "no model"), ("crash", r"/models/m ended by SIGSEGV")])
def test_a_model_that_cannot_be_loaded_is_refused(tmp_path: Path, how: str, words: str) -> None:
    with pytest.raises(LoadFailed, match=words) as error:
        started(tmp_path, how)
    assert isinstance(error.value, EngineError)


async def test_who_waits_behind_an_inference_leaves_at_once(engine: ChildEngine) -> None:
    hanging, waiting = Cancellation(), Cancellation()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, engine, HANG, cancellation=hanging)
        await eventually(lambda: engine._slot._holder is not None)
        second = pool.submit(ask, engine, HANG, cancellation=waiting)
        waiting.cancel()
        with pytest.raises(Cancelled):
            second.result(HANG_AFTER / 2)
        assert not first.done()
        os.kill(engine._child.pid, signal.SIGKILL)  # type: ignore[union-attr]
        with pytest.raises(InferenceFailed):
            first.result(10)


def test_a_model_that_hangs_when_it_is_loaded_again_is_given_up(
    engine: ChildEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "HANG_AFTER", 0.05)
    monkeypatch.setattr(child, "RELOAD_FACTOR", 0.5)
    with pytest.raises(InferenceFailed):
        ask(engine, CRASH)
    (tmp_path / "how").write_text("hang")
    with pytest.raises(LoadFailed, match="SIGKILL"):
        ask(engine, 1)
    (tmp_path / "how").write_text("well")
    monkeypatch.undo()
    assert ask(engine, 1) == [2]


def test_its_libraries_use_the_threads_that_it_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    made = started(tmp_path)
    try:
        assert made.infer({"x": np.ones(1)}, ["threads"])[0] == 3
    finally:
        made.close()


async def test_a_process_that_hangs_ends_with_its_server(tmp_path: Path) -> None:
    script = (
        "import os, threading\nfrom pathlib import Path\nfrom tests.serving.engines import test_child\n"
        f"engine = test_child.started(Path({str(tmp_path)!r}))\n"
        "print(test_child.pid_of(engine), flush=True)\n"
        f"test_child.ask(engine, {SPIN})"
    )
    server = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert server.stdout is not None and server.stderr is not None
        pid = int(server.stdout.readline())
        while b"spinning" not in server.stderr.readline():
            pass
        assert Path(f"/proc/{pid}").exists()
    finally:
        server.kill()
        server.communicate()
    orphan = Path(f"/proc/{pid}/cmdline")
    assert await eventually(lambda: not orphan.exists() or not orphan.read_bytes())


async def test_no_process_is_left_behind(tmp_path: Path) -> None:
    made = started(tmp_path)
    pid = pid_of(made)
    made.close()
    assert not Path(f"/proc/{pid}").exists()
    script = (
        "import os\nfrom pathlib import Path\nfrom tests.serving.engines import test_child\n"
        f"engine = test_child.started(Path({str(tmp_path)!r}))\n"
        "print(test_child.pid_of(engine), flush=True)\nos._exit(0)"  # as after a SIGKILL: nothing is closed
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    orphan = Path(f"/proc/{int(done.stdout)}/cmdline")
    assert await eventually(lambda: not orphan.exists() or not orphan.read_bytes())
