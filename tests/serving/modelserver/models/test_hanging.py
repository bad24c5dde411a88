"""A server of many models, one of which hangs during load or unload: the others remain available."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import NotReady
from serving.modelserver.base.limits import BodyBudget, ServerLimits
from serving.modelserver.base.options import parse_options
from serving.modelserver.base.stats import Stats
from serving.modelserver.execution.workers import HungThreads, Workers
from serving.modelserver.model_host import ModelHost, ServerContext
from serving.modelserver.models.loader import LoadBudget
from serving.modelserver.models.repository_model import RETRY, RepositoryModel
from serving.modelserver.observe.observability import Observability
from tests.serving.modelserver.client import Answer
from tests.serving.modelserver.models.conftest import SIZE, Many, ServeMany, weighty
from tests.serving.modelserver.models.gate import CODE, OPEN
from tests.support import models
from tests.support.wait import eventually

PYTHON = ("--format", "python", "--allow-code")
SOON = "0.4"
"""Seconds: a model of these tests is loaded in some hundredth of that."""


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a model whose `load` hangs until the test ends or opens the gate."""
    OPEN.clear()
    place = tmp_path / "hanging"
    place.mkdir()
    (place / "model.py").write_text(CODE)
    yield place
    OPEN.set()


@pytest.fixture
def given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a thread as hung as soon as its time is over."""
    monkeypatch.setattr("serving.modelserver.models.many.HUNG_AFTER", 0.0)


async def load(running: Many, place: Path, name: str) -> Answer:
    """Load the python model in `place` under this name."""
    parameters = {"storageUri": place.as_uri(), "modelFormat": "python"}
    return await running.manage(f"/models/{name}/load", {"parameters": parameters})


async def live(running: Many) -> bool:
    """Return whether the liveness probe succeeds."""
    return (await running.get("/v2/health/live")).status == 200


async def test_a_model_that_hangs_as_it_is_loaded_keeps_no_other_one_out(
    serve_many: ServeMany, folder: Path, hanging: Path
) -> None:
    hanging.rename(folder / "a-hanging")
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_bytes(models.code())
    running = await serve_many(*PYTHON, "--load-timeout", SOON)  # in the order of their names
    assert [state for _, state in (await running.states()).values()] == ["UNAVAILABLE", "READY"]
    assert await running.reason("a-hanging") == (
        f"model 'a-hanging' was not loaded within {SOON} s: "
        "check its store and its code for what blocks, or raise --load-timeout"
    )
    refused = await running.ask_for("a-hanging", 1.0)
    assert (refused.status, "hangs" in refused.error, await live(running)) == (503, True, True)


async def test_a_load_call_that_hangs_is_answered_and_what_it_made_in_the_end_is_let_go_of(
    serve_many: ServeMany, hanging: Path
) -> None:
    running = await serve_many("--allow-code", "--load-timeout", SOON, load=False)
    loading = asyncio.create_task(load(running, hanging, "hanging"))
    await eventually(lambda: str(hanging) in sys.path)
    unloading = asyncio.create_task(running.manage("/models/double/unload"))
    answer = await loading
    assert (answer.status, "'hanging' was not loaded within" in answer.error) == (503, True)
    assert (await unloading).status == 200
    assert str(hanging) in sys.path
    OPEN.set()
    await eventually(lambda: str(hanging) not in sys.path)
    assert "hanging" not in await running.states()
    assert (await load(running, hanging, "hanging")).status == 200


async def test_when_too_many_loads_hang_the_server_asks_for_a_restart(
    serve_many: ServeMany, hanging: Path, given_up_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.modelserver.execution.workers.MAX_HUNG", 2)
    running = await serve_many("--allow-code", "--load-timeout", "0.1", load=False)
    for name in ("one", "two"):
        assert await live(running)
        assert (await load(running, hanging, name)).status == 503

    async def hopeless() -> bool:
        return not await live(running)

    await eventually(hopeless)
    assert "threads hang" in (await running.get("/v2/health/live")).error
    assert "2 threads hang" in (await load(running, hanging, "three")).error
    OPEN.set()
    await eventually(lambda: live(running))


async def test_an_engine_that_does_not_let_go_of_its_model_keeps_no_other_one_out(
    serve_many: ServeMany, given_up_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await serve_many()
    released, close = threading.Event(), ModelHost.close

    def hangs(host: ModelHost) -> None:
        released.wait(30)
        close(host)

    with monkeypatch.context() as patched:
        patched.setattr(ModelHost, "close", hangs)
        patched.setattr("serving.modelserver.models.loader.CLOSE_TIMEOUT", 0.05)
        for name in ("double", "triple"):
            assert (await running.manage(f"/models/{name}/unload")).status == 200
    assert (await running.manage("/models/double/load")).status == 200
    released.set()


async def test_what_was_loaded_and_has_no_room_is_closed_in_a_thread(
    serve_many: ServeMany, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "large.onnx").write_bytes(weighty(1))
    grown, closed_in, close = count(step=3 * SIZE), list[threading.Thread](), ModelHost.close

    def watched(host: ModelHost) -> None:
        closed_in.append(threading.current_thread())
        close(host)

    monkeypatch.setattr("serving.modelserver.models.loader.resident_bytes", lambda: next(grown))
    monkeypatch.setattr(ModelHost, "close", watched)
    running = await serve_many("--memory-limit", str(2 * SIZE), load=False)
    answer = await running.manage("/models/large/load")
    assert (answer.status, "needs 3 MiB" in answer.error) == (400, True)
    await eventually(lambda: closed_in)
    assert threading.current_thread() not in closed_in


async def test_the_folder_is_looked_through_in_a_thread(serve_many: ServeMany, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await serve_many("--load-timeout", "0.1", load=False)
    released = threading.Event()
    monkeypatch.setattr("serving.modelserver.models.many.find_model", lambda *_: released.wait(30) and None)
    answer = await running.manage("/models/later/load")
    assert (answer.status, "not loaded within 0.1 s" in answer.error) == (503, True)
    released.set()


async def test_to_fetch_and_to_load_share_the_time() -> None:
    workers, released = Workers(1, asyncio.get_running_loop()), threading.Event()
    budget = LoadBudget(workers, "m", 60.0)
    assert await budget.run(lambda _: 7) == 7
    assert 0 < budget.spent < 60
    budget.spent = 60.0
    with pytest.raises(NotReady, match="'m' was not loaded within 60 s"):
        await budget.run(lambda _: released.wait(30))
    released.set()
    workers.close()


async def test_others_have_as_much_time_to_load_as_the_failure_of_one_took() -> None:
    options = parse_options(["--models", "/models"], {})
    clock, stats, asked = [1000.0], Stats(time.monotonic), list[RepositoryModel]()
    context = ServerContext(
        options, ServerLimits(), BodyBudget(1), HungThreads(1), Observability(options.observability, stats, sys.stderr)
    )
    assignment = Assignment("m", "m-00001", "", "", "", options.bounds)
    model = RepositoryModel(assignment, context, stats, asked.append, lambda: clock[0])
    for cost, bar in ((0.1, RETRY), (600.0, 600.0)):
        model.load_seconds = cost
        model.fail("it hung")
        clock[0] += bar - 1
        with pytest.raises(NotReady):
            model.pending()
        clock[0] += 1
        model.pending()
    assert asked == [model, model]
