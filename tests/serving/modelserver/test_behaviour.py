"""Load, deadlines, disconnecting clients and shutdown of a server."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from typing import Any

import pytest

from tests.serving.modelserver.client import Answer, request, tensor
from tests.serving.modelserver.conftest import NAME, Running, Serve
from tests.support import models
from tests.support.wait import eventually

INFER = f"/v2/models/{NAME}/infer"
CALL = request("POST", INFER, json.dumps({"inputs": [tensor([1.0])]}).encode())


async def load_is(running: Running, active: int, queued: int) -> Any:
    """Wait until `active` and `queued` are reached, and return the page `/stats`."""

    async def looks() -> Any:
        stats = await running.stats()
        return stats if (stats["active"], stats["queued"]) == (active, queued) else None

    return await eventually(looks)


async def test_more_than_slots_and_queue_is_429_at_once(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1", "--queue", "1")
    first = asyncio.create_task(running.infer(tensor([1.0])))
    await load_is(running, active=1, queued=0)
    second = asyncio.create_task(running.infer(tensor([2.0])))
    await load_is(running, active=1, queued=1)
    third = await running.infer(tensor([3.0]))
    assert (third.status, third.headers["retry-after"]) == (429, "1")
    assert [answer.json["outputs"][0]["data"] for answer in await asyncio.gather(first, second)] == [[2.0], [4.0]]
    stats = await load_is(running, active=0, queued=0)
    assert (stats["requests"], stats["slots"], stats["revision"]) == (2, 1, "m-00007")
    assert stats["busySeconds"] > 0


async def test_health_is_answered_while_the_model_works(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1")
    busy = asyncio.create_task(running.infer(tensor([1.0])))
    await load_is(running, active=1, queued=0)
    assert (await running.get("/v2/health/ready")).status == 200
    assert not busy.done()
    await busy


@pytest.mark.fault("M4")
async def test_a_deadline_in_the_queue_is_503_and_one_in_the_model_504(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1", "--timeout", "0.04")
    first, second = await asyncio.gather(running.infer(tensor([1.0])), running.infer(tensor([2.0])))
    assert {first.status, second.status} == {503, 504}
    waited = first if first.status == 503 else second
    assert waited.headers["retry-after"] == "1"
    await load_is(running, active=0, queued=0)


@pytest.mark.fault("M9")
async def test_a_caller_that_leaves_frees_its_slot_and_its_place(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "1")
    inside, waiting = await running.connect(), await running.connect()
    await inside.send(CALL)
    await load_is(running, active=1, queued=0)
    await waiting.send(CALL)
    await load_is(running, active=1, queued=1)
    waiting.reset()
    inside.reset()
    await load_is(running, active=0, queued=0)
    assert (await running.infer(tensor([1.0]))).status == 200


@pytest.mark.fault("M5")
async def test_draining_answers_what_is_in_flight_and_what_still_comes(serve: Serve) -> None:
    running = await serve(models.slow())
    kept = await running.connect()
    await kept.send(request("GET", "/v2/health/ready"))
    assert (await kept.answer()).status == 200
    in_flight = asyncio.create_task(running.infer(tensor([1.0])))
    await load_is(running, active=1, queued=0)
    draining = asyncio.create_task(running.server.drain())
    await eventually(lambda: _is_unready(running))
    await kept.send(CALL)
    late = await kept.answer()
    assert (late.status, late.headers["connection"]) == (200, "close")
    assert (await in_flight).status == 200
    kept.close()
    await draining


async def _is_unready(running: Running) -> bool:
    answer = await running.get("/v2/health/ready")
    return answer.status == 503 and "shutting down" in answer.error


@pytest.mark.fault("M4")
async def test_what_fails_in_the_model_is_500_with_an_id_for_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [models.node("Reshape", ["x", "sizes"], ["y"])]
    running = await serve(
        models.model(
            nodes,
            [models.value("x", models.FLOAT, ["n"])],
            [models.value("y", models.FLOAT, ["a", "b"])],
            [models.integers("sizes", [2, 2])],
        )
    )
    answer = await running.infer(tensor([1.0, 2.0, 3.0]))
    assert answer.status == 500
    number = answer.error.partition("error ")[2].partition(";")[0]
    assert len(number) == 8
    assert number in caplog.text
    assert "Reshape" in caplog.text and "Reshape" not in answer.error
    assert (await running.infer(tensor([1.0, 2.0, 3.0, 4.0]))).status == 200


async def test_what_callers_send_with_leaves_no_trace_in_others(serve: Serve) -> None:
    running = await serve(models.slow(), "--slots", "2")

    async def one(index: int) -> Answer:
        good = tensor([float(index)])
        return await running.infer(good if index % 3 else {**good, "data": ["poison"]})

    answers = await asyncio.gather(*(one(index) for index in range(9)))
    assert [answer.status for answer in answers] == [400 if not index % 3 else 200 for index in range(9)]
    assert [answer.json["outputs"][0]["data"] for answer in answers if answer.status == 200] == [
        [2.0 * index] for index in range(9) if index % 3
    ]


async def test_the_access_log_has_one_json_line_for_each_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    running = await serve(models.double(), "--access-log")
    await running.infer(tensor([1.0]))

    def requests() -> list[str]:  # among whatever else is written there
        lines = written.getvalue().splitlines(keepends=True)
        return [line for line in lines if line.startswith("{") and line[-1] == "\n"]

    lines = [json.loads(line) for line in await eventually(requests)]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [("POST", INFER, 200)]
