"""Both transports against servers that misbehave, and with HTTP clients of the caller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import knodel
from clusters.base.objects import MODEL
from clusters.net import unix_sockets
from knodel.transport.asynchronous import AsyncDriver
from knodel.transport.tasks import AsyncHttpxTransport
from knodel.transport.threads import HttpxTransport
from serving.client.api import ApiCalls
from serving.client.blocking import BlockingDriver, HttpTransport, NoProgress
from serving.client.effects import Call, HttpAnswer, HttpRequest, Item, Items, exchange, open_stream, read_line
from serving.client.errors import ClientError, NotConnected, Unreachable
from serving.client.http import ServerAddress
from serving.client.server import Server

METADATA = {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}], "outputs": []}
ANSWER = {"id": "1", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}]}
Script = Callable[[socket.socket, bytes], None]


def response(value: object, status: int = 200, headers: str = "") -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class ScriptedServer:
    """A server that handles its n-th request by the n-th script, and later ones by the last; counts requests."""

    def __init__(self, listener: socket.socket, scripts: list[Script]) -> None:
        self.heads: list[bytes] = []
        self._listener = listener
        self._scripts = scripts
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for one in self._held:
            one.close()

    def _run(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            self._held.append(wire)
            threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while head := self._head(wire):
                script = self._scripts[min(len(self.heads), len(self._scripts) - 1)]
                self.heads.append(head)
                script(wire, head)

    @staticmethod
    def _head(wire: socket.socket) -> bytes:
        content = b""
        while b"\r\n\r\n" not in content:
            part = wire.recv(65536)
            if not part:
                return b""
            content += part
        head, _, body = content.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < length:
            body += wire.recv(65536)
        return head


def sends(content: bytes) -> Script:
    return lambda wire, _: wire.sendall(content)


def closes(wire: socket.socket, _: bytes) -> None:
    wire.shutdown(socket.SHUT_RDWR)


def truncates(wire: socket.socket, _: bytes) -> None:
    wire.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
    wire.shutdown(socket.SHUT_RDWR)


def drips(wire: socket.socket, _: bytes) -> None:
    wire.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        wire.sendall(b"X-Slow: 1\r\n")
        time.sleep(0.02)


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[ServerAddress, ScriptedServer]]]:
    made = []

    def start(*scripts: Script) -> tuple[ServerAddress, ScriptedServer]:
        listener = socket.create_server(("127.0.0.1", 0))
        made.append(ScriptedServer(listener, list(scripts)))
        return ServerAddress("127.0.0.1", listener.getsockname()[1], "the server", "start it"), made[-1]

    yield start
    for one in made:
        one.close()


class Runner:
    """Runs operations with one of the three drivers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, call: Call[Any]) -> Any:
        if self.kind == "standard library":
            return BlockingDriver(HttpTransport()).run(call)
        if self.kind == "threads":
            transport = HttpxTransport()
            try:
                return BlockingDriver(transport).run(call)
            finally:
                transport.close_all()
        return asyncio.run(self._run(call))

    async def _run(self, call: Call[Any]) -> Any:
        transport = AsyncHttpxTransport()
        try:
            return await AsyncDriver(transport, NoProgress, print).run(call)
        finally:
            await transport.close_all()


@pytest.fixture(params=["standard library", "threads", "tasks"])
def run(request: pytest.FixtureRequest) -> Runner:
    return Runner(request.param)


def all_lines(request: HttpRequest, silence: float | None = 5.0) -> Call[list[bytes]]:
    answer = yield from open_stream(request, silence)
    lines = []
    while line := (yield from read_line(answer.stream)):
        lines.append(line)
    return lines


def test_a_response_with_its_headers(run: Runner, serve: Any) -> None:
    address, server = serve(sends(response({"a": 1}, 201, "X-Some: b\r\nRetry-After: 3\r\n")))
    answer: HttpAnswer = run(exchange(HttpRequest(address, "PUT", "/a%2Fb?c=d+e", {"H": "v"}, b"body")))
    assert (answer.status, answer.headers["x-some"], answer.retry_after()) == (201, "b", 3.0)
    assert json.loads(answer.content) == {"a": 1}
    assert server.heads[0].startswith(b"PUT /a%2Fb?c=d+e HTTP/1.1\r\n")


def test_lines_as_they_arrive(run: Runner, serve: Any) -> None:
    address, _ = serve(
        lambda wire, _: (
            wire.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\none\ntw"),
            wire.sendall(b"o\n\nlast"),
            wire.shutdown(socket.SHUT_RDWR),
        )
    )
    assert run(all_lines(HttpRequest(address, "GET", "/"))) == [b"one\n", b"two\n", b"\n", b"last"]


def test_a_connection_that_is_refused_means_that_nothing_was_sent(run: Runner, serve: Any) -> None:
    address, server = serve(closes)
    server.close()
    with pytest.raises(NotConnected, match=r"the server at 127.0.0.1:\d+ does not respond \(.*\): start it"):
        run(exchange(HttpRequest(address, "GET", "/")))


def test_a_connection_that_is_closed_early_is_no_such_error(run: Runner, serve: Any) -> None:
    for script in (closes, truncates):
        address, _ = serve(script)
        with pytest.raises(Unreachable, match="does not respond") as lost:
            run(exchange(HttpRequest(address, "GET", "/")))
        assert not isinstance(lost.value, NotConnected)


def test_a_response_that_drips_is_given_up_in_time(run: Runner, serve: Any) -> None:
    address, _ = serve(drips)
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"timeout after 0.3 s"):
        run(exchange(HttpRequest(address, "GET", "/", timeout=0.3)))
    assert time.monotonic() - began < 5


def test_silence_ends_a_stream(run: Runner, serve: Any) -> None:
    address, _ = serve(sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n"))
    with pytest.raises(Unreachable):
        run(all_lines(HttpRequest(address, "GET", "/"), silence=0.2))


def test_a_body_without_end_is_bounded(run: Runner, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("serving.client.http", "knodel.transport.common"):
        monkeypatch.setattr(f"{module}.MAX_BODY_BYTES", 1000)
        monkeypatch.setattr(f"{module}.MAX_LINE_BYTES", 1000)
    address, _ = serve(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000))
    with pytest.raises(ClientError, match="is larger than 1000 bytes"):
        run(exchange(HttpRequest(address, "GET", "/")))
    with pytest.raises(ClientError, match="is longer than 1000 bytes"):
        run(all_lines(HttpRequest(address, "GET", "/")))


def test_a_socket_of_another_user_gets_no_token(run: Runner, tmp_path: Path) -> None:
    listener = unix_sockets.listen(tmp_path / "control.sock")
    server = ScriptedServer(listener, [sends(response({}))])
    ours = ServerAddress("localhost", 80, "the platform", "-", socket=tmp_path / "control.sock", owner=os.getuid())
    theirs = ServerAddress("localhost", 80, "the platform", "-", socket=ours.socket, owner=os.getuid() + 1)
    try:
        with pytest.raises(NotConnected, match=f"user {os.getuid()} listens there, not user {os.getuid() + 1}"):
            run(exchange(HttpRequest(theirs, "GET", "/", {"Authorization": "Bearer secret"})))
        assert server.heads == []
        assert run(exchange(HttpRequest(ours, "GET", "/"))).status == 200
    finally:
        server.close()


def test_a_socket_at_a_long_path(run: Runner, tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 150)
    folder.mkdir()
    server = ScriptedServer(unix_sockets.listen(folder / "control.sock"), [sends(response({}))])
    here = ServerAddress("localhost", 80, "the platform", "-", socket=folder / "control.sock", owner=os.getuid())
    try:
        assert run(exchange(HttpRequest(here, "GET", "/"))).status == 200
    finally:
        server.close()


def test_a_read_is_sent_again_and_a_write_is_not(run: Runner, serve: Any) -> None:
    found = {"metadata": {"name": "m"}}
    address, server = serve(closes, sends(response(found)))
    api = ApiCalls(cast(Server, SimpleNamespace(endpoint=address, credentials=dict)), retries=2)
    assert run(api.get(MODEL, "m", "default")) == found
    assert len(server.heads) == 2

    address, server = serve(closes)
    api = ApiCalls(cast(Server, SimpleNamespace(endpoint=address, credentials=dict)), retries=2)
    with pytest.raises(Unreachable):
        run(api.create(MODEL, found, "default"))
    assert len(server.heads) == 1


def predict(kind: str, url: str, data: object, **options: Any) -> knodel.Prediction:
    """Predict with one of the two clients."""
    if kind == "threads":
        with knodel.Client(url, retries=2) as client:
            return client.predict("m", data, **options)

    async def call() -> knodel.Prediction:
        async with knodel.AsyncClient(url, retries=2) as client:
            return await client.predict("m", data, **options)

    return asyncio.run(call())


@pytest.fixture(params=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


WAY = sends(response(METADATA))  # the path of the model is found, then its metadata is read


def url_of(address: ServerAddress) -> str:
    return f"http://127.0.0.1:{address.port}/models/m"


def test_a_platform_that_is_gone_in_mid_predict(kind: str, serve: Any) -> None:
    address, server = serve(WAY, WAY, closes)
    with pytest.raises(knodel.Unreachable, match="the request to model m may have run, so it was not sent again"):
        predict(kind, url_of(address), [1.0])
    assert len(server.heads) == 3


def test_a_busy_model_is_asked_again_when_it_said_so(kind: str, serve: Any) -> None:
    busy = sends(response({"error": "busy"}, 503, "Retry-After: 0\r\n"))
    address, server = serve(WAY, WAY, busy, busy, sends(response(ANSWER)))
    assert predict(kind, url_of(address), [1.0]).to_numpy().tolist() == [2.0]
    assert len(server.heads) == 5


@pytest.mark.parametrize("headers", ["", "Retry-After: 1000\r\n"])
def test_a_busy_model_is_an_error_without_a_time_within_the_timeout(kind: str, serve: Any, headers: str) -> None:
    address, server = serve(WAY, WAY, sends(response({"error": "no replica", "id": "r7"}, 503, headers)))
    with pytest.raises(knodel.ModelError, match="model m responded with 503: no replica") as failed:
        predict(kind, url_of(address), [1.0], timeout=20)
    assert (failed.value.status, failed.value.request_id, len(server.heads)) == (503, "r7", 3)


def test_a_failed_part_has_its_rows(kind: str, serve: Any) -> None:
    def answer(wire: socket.socket, head: bytes) -> None:
        wire.sendall(response({"error": "boom"}, 500))

    address, _ = serve(WAY, WAY, answer)
    with pytest.raises(knodel.ModelError, match="rows 0 to 1: model m responded with 500: boom"):
        predict(kind, url_of(address), [1.0, 2.0, 3.0], batch_size=2, parallel=1)


def test_a_key_that_is_not_accepted(kind: str, serve: Any) -> None:
    address, server = serve(sends(response({}, 401)))
    with pytest.raises(knodel.Forbidden, match="does not accept the api_key of the client"):
        predict(kind, url_of(address), [1.0])
    assert len(server.heads) == 1


def test_a_redirect_is_not_followed_but_shown(kind: str, serve: Any) -> None:
    address, server = serve(sends(response({}, 308, "Location: https://user:pass@models.example.com/x\r\n")))
    with pytest.raises(
        knodel.KnodelError, match=r"redirects to https://\S*models\.example\.com/x: give the URL"
    ) as seen:
        predict(kind, url_of(address), [1.0])
    assert "pass" not in str(seen.value)
    assert len(server.heads) == 1


def test_an_answer_of_something_else(kind: str, serve: Any) -> None:
    address, _ = serve(WAY, WAY, sends(response({"hello": 1})))
    with pytest.raises(knodel.KnodelError, match="the response of model m is not an inference response"):
        predict(kind, url_of(address), [1.0])
    address, _ = serve(sends(response([])))
    with pytest.raises(knodel.KnodelError, match="the response of model m is not model metadata"):
        predict(kind, url_of(address), [1.0])
    address, _ = serve(sends(response({"inputs": [{"name": "x", "datatype": "FOO", "shape": [-1]}]})))
    with pytest.raises(knodel.Invalid, match="input 'x' has the datatype FOO, which is none of BOOL"):
        predict(kind, url_of(address), [1.0])


OUTPUT: dict[str, object] = {"name": "y", "datatype": "FP32", "shape": [1], "data": [2.0]}


@pytest.mark.parametrize(("outputs", "message"), [
    ([[{**OUTPUT, "datatype": "UINT8", "data": [300]}]], "is not an inference response .*300"),
    ([[{**OUTPUT, "shape": [float("inf")]}]], "is not an inference response .*infinity"),
    ([[OUTPUT], [OUTPUT, OUTPUT]], "have different outputs, so they cannot be joined"),
    ([[OUTPUT, OUTPUT], [OUTPUT]], "have different outputs, so they cannot be joined"),
    ([[{**OUTPUT, "shape": []}]], "output y of model m has no rows, so parts cannot be joined: omit batch_size"),
])  # fmt: skip
def test_outputs_that_cannot_be_read_or_joined(
    kind: str, serve: Any, outputs: list[list[dict[str, object]]], message: str
) -> None:
    address, _ = serve(WAY, WAY, *(sends(response({"outputs": several})) for several in outputs))
    with pytest.raises(knodel.KnodelError, match=message):
        predict(kind, url_of(address), [1.0, 2.0], batch_size=1, parallel=1)


def test_durations_that_are_no_numbers_are_ignored(kind: str, serve: Any) -> None:
    address, _ = serve(WAY, WAY, sends(response(ANSWER, headers="Server-Timing: a;dur=\u00b2, b;dur=1.5\r\n")))
    assert predict(kind, url_of(address), [1.0]).timing == {"b": 1.5}


def test_a_large_prediction_has_a_remedy_of_its_own(kind: str, serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knodel.transport.common.MAX_BODY_BYTES", 1000)
    address, _ = serve(WAY, WAY, sends(response({**ANSWER, "more": "x" * 1000})))
    with pytest.raises(knodel.KnodelError, match="is larger than 1000 bytes: give batch_size for smaller parts"):
        predict(kind, url_of(address), [1.0])


def test_iterators_of_threads_never_wait_for_a_connection(serve: Any) -> None:
    address, server = serve(sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n"))
    transport = HttpxTransport()
    open_ones = [transport.open(HttpRequest(address, "GET", "/", timeout=5), None).stream for _ in range(25)]
    assert [transport.read_line(one) for one in open_ones] == [b"a\n"] * 25
    for one in open_ones:
        transport.close(one)
    transport.close_all()
    assert len(server.heads) == 25


def test_connections_of_event_loops_that_have_ended_are_dropped(serve: Any) -> None:
    last = "Connection: close\r\n"
    address, _ = serve(lambda wire, head: wire.sendall(response(ANSWER if b"POST" in head else METADATA, headers=last)))
    client = knodel.AsyncClient(url_of(address))

    async def ask() -> knodel.Prediction:
        return await client.predict("m", [1.0])

    for _ in range(3):
        asyncio.run(ask())
        assert len(client._transport._clients) == 1


def test_many_predictions_at_once_wait_for_a_connection(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knodel.transport.common.MAX_CONNECTIONS", 5)
    address, server = serve(lambda wire, head: wire.sendall(response(ANSWER if b"POST" in head else METADATA)))

    async def ask() -> int:
        async with knodel.AsyncClient(url_of(address)) as client:
            return len(await asyncio.gather(*(client.predict("m", [1.0]) for _ in range(60))))

    assert asyncio.run(ask()) == 60
    assert len(server._held) <= 5


def test_event_loops_of_several_threads_share_a_client(serve: Any) -> None:
    address, _ = serve(lambda wire, head: wire.sendall(response(ANSWER if b"POST" in head else METADATA)))
    client, together = knodel.AsyncClient(url_of(address)), threading.Barrier(2)

    async def ask() -> list[float]:
        values = []
        for _ in range(20):
            together.wait(10)
            values.append((await client.predict("m", [1.0]))["y"][0])
        assert len(client._transport._clients) == 2
        together.wait(10)
        await client.aclose()
        return values

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: asyncio.run(ask()), range(2)))
    assert found == [[2.0] * 20] * 2


def test_items_and_spawned_operations_end_together() -> None:
    async def count() -> list[int]:
        def numbers() -> Items[int]:
            for number in range(3):
                yield Item(number)

        driver = AsyncDriver(AsyncHttpxTransport(), NoProgress, print)
        return [number async for number in driver.iterate(numbers())]

    assert asyncio.run(count()) == [0, 1, 2]
