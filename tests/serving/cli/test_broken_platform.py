"""For any server on the platform's port, a command ends in time with a one-line error."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusters.base.distribution import VERSION
from clusters.base.errors import Gone, KnodelError
from clusters.base.objects import MODEL
from clusters.embedded.store.lock import FolderLock
from clusters.net import unix_sockets
from serving.client.client import Client
from serving.client.errors import ClientError
from serving.client.http import MAX_LINE_BYTES
from serving.client.state import LocalPlatform
from serving.types.settings.state import CONTROL_SOCKET, PLATFORM_FILE
from tests.serving.cli.conftest import Knodel, announce

Talk = Callable[[socket.socket, threading.Event], None]
PATIENCE = 0.3  # s
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextlib.contextmanager
def listener(talk: Talk) -> Iterator[tuple[str, int]]:
    """Run a server that handles each connection by `talk` until the event is set; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as server, handled(server, talk):
        yield server.getsockname()[:2]


@contextlib.contextmanager
def platform(state: Path, talk: Talk, *, version: str = VERSION) -> Iterator[LocalPlatform]:
    """Run a platform whose control API is handled by `talk`."""
    announce(state, "127.0.0.1:9", version=version)
    with FolderLock(state), unix_sockets.listen(state / CONTROL_SOCKET) as server, handled(server, talk):
        yield LocalPlatform.find(state)


@contextlib.contextmanager
def handled(server: socket.socket, talk: Talk) -> Iterator[None]:
    """Let `talk` handle every connection."""
    stop = threading.Event()
    workers: list[threading.Thread] = []

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the client may leave at any moment
            connection.recv(65536)
            talk(connection, stop)

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                worker = threading.Thread(target=one, args=(server.accept()[0],))
                worker.start()
                workers.append(worker)

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield
    finally:
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
        for thread in (acceptor, *workers):
            thread.join(10)


def says(answer: bytes) -> Talk:
    """Send one response and close the connection."""
    return lambda connection, _: connection.sendall(answer)


def answers(status: str, body: bytes, type: str = "application/json") -> Talk:
    """Send a well-formed response."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return says(head.encode() + body)


def nothing(_: socket.socket, stop: threading.Event) -> None:
    """Read the request and send nothing."""
    stop.wait(10)


def drips(start: bytes, drop: bytes) -> Talk:
    """Send a few bytes at a time without end; no single pause is long."""

    def talk(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(start)
        while not stop.wait(PATIENCE / 20):
            connection.sendall(drop)

    return talk


def floods(start: bytes) -> Talk:
    """Send as fast as possible without end."""

    def talk(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(start)
        while not stop.is_set():
            connection.sendall(b"x" * 65536)

    return talk


BROKEN = {
    "HTML 502": answers("502 Bad Gateway", b"<html>\x1b[31mBad Gateway</html>", "text/html"),
    "HTML 200": answers("200 OK", b"<html>Welcome</html>", "text/html"),
    "redirect": says(b"HTTP/1.1 302 Found\r\nLocation: http://example.org/\r\nContent-Length: 0\r\n\r\n"),
    "no JSON": answers("200 OK", b"{"),
    "no object": answers("200 OK", b"[]"),
    "another object": answers("200 OK", b"{}"),
    "items of another kind": answers("200 OK", b'{"items": [1]}'),
    "items without names": answers("200 OK", b'{"items": [{"metadata": {}}]}'),
    "deep JSON": answers("200 OK", b"[" * 100_000),
    "bad UTF-8": answers("200 OK", b'{"items": "\xff"}'),
    "a status of another shape": answers("422 Unprocessable", b'{"kind": "Status", "message": 7}'),
    "an error without detail": answers("500 Oops", b""),
    "no HTTP": says(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "nothing at all": says(b""),
    "cut off in the head": says(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "cut off in the body": says(HEAD + b'Content-Length: 100\r\n\r\n{"items": ['),
    "an endless head": floods(b"HTTP/1.1 200 OK\r\nX: "),
    "an endless body": floods(HEAD + b"\r\n"),
}
SLOW = {
    "silence": nothing,
    "a dripping head": drips(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "dripping headers": drips(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a dripping body": drips(HEAD + b"\r\n", b" "),
    "a dripping body of known length": drips(HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
}


@pytest.mark.bad_input("command-servers")
@pytest.mark.parametrize("talk", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("verb", [("list",), ("wait", "magika", "--timeout", "5s")], ids=["list", "wait"])
@pytest.mark.fault("C2")
def test_a_broken_platform_is_one_line_and_a_failure(
    knodel: Knodel, state: Path, talk: Talk, verb: tuple[str, ...]
) -> None:
    with platform(state, talk):
        done = knodel(*verb)

    assert done.code in (1, 2)
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert done.err[:-1].isprintable()
    assert "unexpected" not in done.err


@pytest.mark.bad_input("command-servers")
@pytest.mark.parametrize("talk", SLOW.values(), ids=SLOW.keys())
@pytest.mark.fault("C2")
def test_a_slow_platform_is_given_up_in_time(state: Path, talk: Talk) -> None:
    with platform(state, talk) as slow:
        client, began = Client(slow, PATIENCE), time.monotonic()
        with pytest.raises(ClientError, match=r"does not respond \((timeout after 0.3 s|timed out)\).*knodel doctor"):
            client.list(MODEL, "default")

    assert time.monotonic() - began < PATIENCE * 5


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C2")
def test_a_platform_that_is_gone_is_named_with_the_remedy(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    with FolderLock(state):
        done = knodel("list")

    assert done.code == 1
    assert f"{state / CONTROL_SOCKET} does not respond (" in done.err
    assert "`knodel doctor`" in done.err


REFUSAL = {"kind": "Status", "reason": "BadRequest", "code": 400, "message": 'unknown field "spec.later"'}
LATER = json.dumps(REFUSAL).encode()


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C4")
@pytest.mark.parametrize(("version", "named"), [("0.0.9", True), ("99.0.0", True), (VERSION, False)])
def test_a_failure_on_a_platform_of_another_version_names_both(
    knodel: Knodel, state: Path, version: str, named: bool
) -> None:
    with platform(state, answers("400 Bad Request", LATER), version=version):
        done = knodel("list")

    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert 'unknown field "spec.later"' in done.err
    skew = f"the platform has version {version}, this command {VERSION}: `knodel down`, then `knodel up --detach"
    assert (skew in done.err) is named


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C4")
def test_facts_of_a_later_release_are_ignored(knodel: Knodel, state: Path) -> None:
    with platform(state, answers("200 OK", b'{"items": []}'), version="99.0.0"):
        path = state / PLATFORM_FILE
        path.write_text(json.dumps({**json.loads(path.read_text()), "region": "north"}))
        done = knodel("list")

    assert (done.code, done.err) == (0, "")


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C5")
def test_the_message_of_an_error_cannot_move_the_cursor(knodel: Knodel, state: Path) -> None:
    status = {"kind": "Status", "reason": "NotFound", "message": "no \x1b[2J\x9b2J\r\nknodel: all is well"}
    with platform(state, answers("404 Not Found", json.dumps(status).encode())):
        done = knodel("get", "magika")

    assert done.code == 3
    assert len(done.err.splitlines()) == 1
    assert done.err[:-1].isprintable()


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C5")
def test_hostile_names_in_a_list_stay_on_their_line(knodel: Knodel, state: Path) -> None:
    item = {"metadata": {"name": "x\x1b[2J\nready", "namespace": "default"}, "spec": {}, "status": {"url": "\x9b31m"}}
    with platform(state, answers("200 OK", json.dumps({"items": [item]}).encode())):
        done = knodel("list")

    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    assert done.out.replace("\n", "").isprintable()


@pytest.mark.bad_input("command-servers")
def test_a_wrong_token_has_a_message_of_its_own(knodel: Knodel, state: Path) -> None:
    status = {"kind": "Status", "reason": "Unauthorized", "message": "a bearer token is required"}
    with platform(state, answers("401 Unauthorized", json.dumps(status).encode())):
        done = knodel("list")

    assert done.code == 1
    assert "does not accept the token" in done.err


@pytest.mark.bad_input("command-servers")
@pytest.mark.parametrize("token", ["", "two words\nand lines", "tökén"])
def test_a_token_file_that_holds_none_is_named(knodel: Knodel, state: Path, token: str) -> None:
    announce(state, "127.0.0.1:9", token=token)
    with FolderLock(state):
        done = knodel("list")

    assert done.code == 1
    assert str(state / "token") in done.err


@pytest.mark.bad_input("command-servers")
@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}\n', Gone),
        (b'{"type": "ADDED"}\n', ClientError),
        (b'{"type": 1, "object": {"metadata": {"name": "x"}}}\n', ClientError),
        (b"[]\n", ClientError),
        (b"x" * (MAX_LINE_BYTES + 2), ClientError),
    ],
    ids=["expired", "without object", "without type", "no object", "an endless line"],
)
def test_a_watch_of_another_shape_is_an_error(state: Path, lines: bytes, error: type[KnodelError]) -> None:
    with platform(state, says(HEAD + b"\r\n" + lines)) as broken, pytest.raises(error):
        list(Client(broken, 5.0).watch(MODEL, "default", "x", "1", 5.0))


@pytest.mark.bad_input("command-servers")
def test_a_silent_watch_is_no_fault_before_its_time(state: Path) -> None:
    event = b'{"type": "MODIFIED", "object": {"metadata": {"name": "x"}}}\n'

    def talk(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(HEAD + b"\r\n")
        stop.wait(PATIENCE * 2)  # longer than one answer may take
        connection.sendall(event)

    with platform(state, talk) as silent:
        seen = list(Client(silent, PATIENCE).watch(MODEL, "default", "x", "1", 5.0))

    assert [change for change, _ in seen] == ["MODIFIED"]


@pytest.mark.bad_input("command-servers")
@pytest.mark.fault("C5")
def test_a_gateway_that_fails_is_one_line(knodel: Knodel, state: Path) -> None:
    with listener(answers("503 Unavailable", b'{"error": "no \x1b[31mreplica"}')) as (host, port):
        announce(state, "127.0.0.1:9", f"{host}:{port}")
        with FolderLock(state):
            done = knodel("predict", "magika", "-d", "{}")

    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert done.err[:-1].isprintable()


@pytest.mark.bad_input("command-servers")
@pytest.mark.parametrize(
    ("status", "code"), [("400 Bad", 2), ("404 Not Found", 3), ("429 Too Many", 1), ("500 Oops", 1)]
)
def test_an_answer_of_a_model_gives_the_exit_code(knodel: Knodel, state: Path, status: str, code: int) -> None:
    with listener(answers(status, b'{"error": "because"}')) as (host, port):
        announce(state, "127.0.0.1:9", f"{host}:{port}")
        with FolderLock(state):
            done = knodel("predict", "magika", "-d", "{}")

    assert (done.code, done.out) == (code, "")
    assert "because" in done.err
