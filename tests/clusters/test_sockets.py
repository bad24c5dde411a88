"""Guarded ports, and listening sockets that a process inherits."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.errors import AddressInUse
from clusters.net.sockets import LISTEN_FDS, PortGuard, find_inherited, guard_localhost, listen_environment

HOST = "127.0.0.1"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_a_guarded_port_refuses_connections_until_a_server_listens() -> None:
    with contextlib.closing(PortGuard.take(HOST, free_port())) as guard:
        with guard.listen() as listener:
            address = listener.getsockname()
            socket.create_connection(address).close()

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)


def test_the_next_server_listens_although_connections_of_the_former_one_linger() -> None:
    with contextlib.closing(PortGuard.take(HOST, free_port())) as guard:
        with guard.listen() as listener, socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()  # the server closes first: TIME_WAIT

        guard.listen().close()


def test_a_port_is_taken_once() -> None:
    port = free_port()
    with contextlib.closing(PortGuard.take(HOST, port)), pytest.raises(OSError, match="in use"):
        PortGuard.take(HOST, port)


def test_a_port_on_which_another_server_listens_is_neither_taken_nor_joined() -> None:
    with socket.create_server((HOST, 0)) as server:
        for guard in (PortGuard.take, PortGuard.join):
            with pytest.raises(OSError, match="in use"):
                guard(*server.getsockname())


def test_a_server_outlives_its_guard_and_gets_another() -> None:
    former = PortGuard.take(HOST, free_port())
    with former.listen() as listener:
        former.close()
        with contextlib.closing(PortGuard.join(*listener.getsockname())) as guard:
            listener.close()

            guard.listen().close()


@pytest.mark.parametrize(("host", "other"), [(HOST, "::1"), ("0.0.0.0", "::1"), ("::1", HOST)])
def test_the_other_address_of_localhost_is_kept_too(host: str, other: str) -> None:
    port = free_port()
    guard = guard_localhost(host, port, "choose another")
    assert guard is not None
    with contextlib.closing(guard), pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, port))
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    taken = pytest.raises(AddressInUse, match=f"port {port} of {other}.*: choose another")
    with socket.create_server((other, port), family=family), taken:
        guard_localhost(host, port, "choose another")


def test_an_address_that_is_not_of_localhost_stands_alone() -> None:
    assert guard_localhost("192.0.2.1", free_port(), "") is None


@pytest.mark.parametrize("words", ["", "x", "-1", "99999", "0"])
def test_words_that_name_no_listening_socket_are_passed_over(words: str) -> None:
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as connection:
        host, port = server.getsockname()

        assert find_inherited(words, host, port) is None
        assert find_inherited(str(connection.fileno()), *connection.getsockname()) is None
        found = find_inherited(f"{words},{connection.fileno()},{server.fileno()}", host, port)

        assert found is not None and found.detach() == server.fileno()


def test_a_model_server_listens_on_the_sockets_that_it_inherits(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(2)]
        descriptors = [one.fileno() for one in sockets]
        port, management = (str(one.getsockname()[1]) for one in sockets)
        environment = {**os.environ, "HOST": HOST, "PORT": port, "MANAGEMENT_PORT": management, "TMPDIR": str(tmp_path)}

        with subprocess.Popen(
            [sys.executable, "-m", "serving.modelserver", "--models", str(tmp_path)],
            env=environment | listen_environment(descriptors), pass_fds=descriptors, stderr=subprocess.DEVNULL,
        ) as server:  # fmt: skip
            answer = get(int(port), "/v2/health/live")
            inherited = (Path("/proc") / str(server.pid) / "environ").read_text()
            server.terminate()

    assert answer.startswith(b"HTTP/1.1 200")
    assert f"{LISTEN_FDS}={descriptors[0]},{descriptors[1]}" in inherited


def get(port: int, path: str) -> bytes:
    """The answer of an HTTP server."""
    with socket.create_connection((HOST, port), timeout=30.0) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return answer.read()
