"""Many concurrent clients of all protocols, with and without batches: each gets its own response."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest

from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.server import ModelServer
from tests.serving.modelserver.client import HOST, Caller, ask, request, tensor
from tests.serving.modelserver.conftest import NAME, REVISION
from tests.serving.modelserver.grpc_parts import asked, begin
from tests.support import models
from tests.support.ports import free_port

CALLERS = 64
ROUNDS = 4
ENTRIES = 2 * CALLERS
BATCH = 16
FEATURES, WIDTH, ANSWERS = 64, 16384, 2  # 4 MB of weights: nothing that the event loop would do by the way
INDEX_OUT_OF_RANGE, WRONG_TYPE = ENTRIES, "no number"

Row = list[float]
Asked = Callable[[str, list[Any]], Awaitable[tuple[int, str, list[Row]]]]
"""Send a request for entries with an id; returns the HTTP status, the id of the response, and its rows."""


class Table:
    """INT64 x [n] → y [n, 2]: looks up each entry in a table of many weights. Refuses unknown entries."""

    def __init__(self) -> None:
        noise = np.random.default_rng(64)
        shapes = (ENTRIES, FEATURES), (FEATURES, WIDTH), (WIDTH, ANSWERS)
        self._parts = [noise.standard_normal(shape, np.float32) / np.sqrt(shape[0]) for shape in shapes]

    def rows(self, entries: list[int]) -> Row:
        """Return the correct response as a flat list."""
        table, first, second = (part.astype(np.float64) for part in self._parts)
        return [float(value) for value in (table[entries] @ first @ second).ravel()]

    def onnx(self) -> bytes:
        """Return the model."""
        names = ("table", "first", "second")
        pairs = zip(names, self._parts, strict=True)
        return models.model(
            [
                models.node("Gather", ["table", "x"], ["entries"]),
                models.node("MatMul", ["entries", "first"], ["wide"]),
                models.node("MatMul", ["wide", "second"], ["y"]),
            ],
            [models.value("x", models.INT64, ["n"])],
            [models.value("y", models.FLOAT, ["n", ANSWERS])],
            [models.tensor(name, models.FLOAT, part.shape, part.astype("<f4").tobytes()) for name, part in pairs],
        )


class Running:
    """A server with all ports."""

    def __init__(self, server: ModelServer, sockets: Sockets, grpc_port: int, table: Table, batched: bool) -> None:
        self.server = server
        self.batched = batched
        self.port, self.management_port = (int(one.getsockname()[1]) for one in (sockets.data, sockets.management))
        self.grpc_port = grpc_port
        self.table = table

    async def batches(self) -> tuple[int, int]:
        """Return the number of batches, and of the requests in them."""
        page = (await ask(self.management_port, request("GET", "/metrics"))).body.decode()
        numbers = [re.findall(rf"knodel_batch_size_{word}{{.*}} (\S+)", page) for word in ("count", "sum")]
        count, total = (int(float(found[0])) for found in numbers)
        return count, total


@pytest.fixture(params=["one by one", "in batches"])
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    """Return a server of `Table`."""
    table, path = Table(), tmp_path / "model.onnx"
    path.write_bytes(table.onnx())
    options = ["--name", NAME, "--storage-uri", path.as_uri()]
    if request.param == "in batches":
        options += ["--max-batch-size", str(BATCH)]
    grpc_port = free_port()
    sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
    environ = {"K_REVISION": REVISION, "HOST": HOST, "GRPC_PORT": str(grpc_port)}
    server = ModelServer(parse_options(options, environ), sockets, ServerLimits())
    await server.start()
    await server.load()
    yield Running(server, sockets, grpc_port, table, request.param == "in batches")
    async with asyncio.timeout(5):
        await server.close()


async def test_64_callers_get_their_own_answers_and_a_poisoned_request_affects_no_other(
    running: Running,
) -> None:
    async with (
        asyncio.timeout(30),
        grpc.aio.insecure_channel(f"{HOST}:{running.grpc_port}") as channel,
        asyncio.TaskGroup() as group,
    ):
        ways = (_json, _binary, _table, _grpc(channel))
        for caller in range(CALLERS):
            group.create_task(_connected(caller, ways[caller % len(ways)], running))
    count, total = await running.batches()
    if running.batched:
        assert 0 < count < total / 2
    else:
        assert (count, total) == (0, 0)


async def _connected(caller: int, way: Callable[[Caller], Asked], running: Running) -> None:
    connection = await Caller.connect(running.port)
    try:
        await _call(caller, way(connection), running.table)
    finally:
        connection.close()


async def _call(caller: int, way: Asked, table: Table) -> None:
    for turn in range(ROUNDS):
        entries = [caller, caller + CALLERS][: 1 + (caller + turn) % 2]
        wrong = caller % 7 == turn % 7
        poisoned = [INDEX_OUT_OF_RANGE if turn % 2 else WRONG_TYPE, *entries]
        identity = f"{caller}/{turn}"
        status, told, rows = await way(identity, poisoned if wrong else entries)
        assert status == (400 if wrong else 200), (caller, turn, status)
        if not wrong:
            assert told == identity
            assert np.ravel(rows) == pytest.approx(table.rows(entries), rel=1e-3, abs=1e-4)


def _json(caller: Caller) -> Asked:
    async def ask_it(identity: str, entries: list[Any]) -> tuple[int, str, list[Row]]:
        body = json.dumps({"id": identity, "inputs": [tensor(entries, "INT64")]}).encode()
        await caller.send(request("POST", f"/v2/models/{NAME}/infer", body))
        return _read(await caller.answer())

    return ask_it


def _binary(caller: Caller) -> Asked:
    async def ask_it(identity: str, entries: list[Any]) -> tuple[int, str, list[Row]]:
        numbers = [entry for entry in entries if entry != WRONG_TYPE]  # then it is a size that is wrong
        raw = np.array(numbers, "<i8").tobytes()
        one = tensor(entries, "INT64") | {"parameters": {"binary_data_size": len(raw)}}
        del one["data"]
        head = json.dumps({"id": identity, "inputs": [one]}).encode()
        sized = {"inference_header_content_length": str(len(head))}
        await caller.send(request("POST", f"/v2/models/{NAME}/infer", head + raw, **sized))
        return _read(await caller.answer())

    return ask_it


def _table(caller: Caller) -> Asked:
    async def ask_it(identity: str, entries: list[Any]) -> tuple[int, str, list[Row]]:
        body = json.dumps({"instances": entries}).encode()
        await caller.send(request("POST", f"/v1/models/{NAME}:predict", body))
        answer = await caller.answer()
        return answer.status, identity, answer.json.get("predictions", [])

    return ask_it


def _grpc(channel: grpc.aio.Channel) -> Callable[[Caller], Asked]:
    async def ask_it(identity: str, entries: list[Any]) -> tuple[int, str, list[Row]]:
        numbers = [entry for entry in entries if entry != WRONG_TYPE]
        one = {"name": "x", "datatype": "INT64", "shape": [len(entries)], "contents": {"int64_contents": numbers}}
        try:
            content = await begin(channel, "ModelInfer", asked(one, id=identity))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            return 400, identity, []
        from serving.modelserver.grpc.messages import ModelInferResponse

        answer = ModelInferResponse.FromString(content)
        return 200, answer.id, [list(answer.outputs[0].contents.fp32_contents)]

    return lambda _: ask_it


def _read(answer: Any) -> tuple[int, str, list[Row]]:
    told = answer.json
    return answer.status, told.get("id", ""), [told["outputs"][0]["data"]] if answer.status == 200 else []
