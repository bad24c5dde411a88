"""A platform that was killed leaves its files: no command sends the token to who listens in its place."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusters import unix_sockets
from clusters.embedded.lock import FolderLock
from serving.apis.state import CONTROL_SOCKET, TOKEN_FILE
from tests.serving.cli.conftest import Knodel, announce, check
from tests.serving.cli.kube import TOKEN

STRANGER = 65534  # nobody
VERBS = [("list",), ("get", "magika"), ("doctor",), ("events", "list"), ("wait", "magika", "--timeout", "1s")]


@contextmanager
def eavesdropper() -> Iterator[tuple[str, bytearray]]:
    """A listener at a TCP port that keeps all that it receives; its address."""
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                with caller:
                    received.extend(caller.recv(65536))

        thread = threading.Thread(target=listen)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}", received
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_the_token_is_not_sent_to_who_listens_at_the_port_of_a_killed_platform(
    knodel: Knodel, state: Path, verb: tuple[str, ...]
) -> None:
    with eavesdropper() as (address, received):
        announce(state, address)
        done = knodel(*verb)

    assert TOKEN.encode() not in received
    assert done.code != 0


def test_a_killed_platform_is_named_with_the_remedy(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")

    check(knodel("list"), 1, ["no platform runs on", str(state), "`knodel up --detach`"])


def test_a_lock_of_another_process_than_the_recorded_one_is_no_platform(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    with FolderLock(state):
        (state / "lock").write_text("1\n")
        check(knodel("list"), 1, ["no platform runs on"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_token_is_not_sent_to_another_user_at_the_control_socket(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    with FolderLock(state), socket.socket(socket.AF_UNIX) as listener:
        with unix_sockets.short_address(state / CONTROL_SOCKET) as address:
            listener.bind(address)
        os.seteuid(STRANGER)  # the kernel records who called `listen`
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        done = knodel("list")
        caller, _ = listener.accept()
        with caller:
            assert caller.recv(65536) == b""

    check(done, 1, [f"user {STRANGER} listens there"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_token_file_of_another_user_is_refused(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    os.chown(state / TOKEN_FILE, STRANGER, -1)
    with FolderLock(state), unix_sockets.listen(state / CONTROL_SOCKET):
        check(knodel("list"), 1, [str(state / TOKEN_FILE), "are you its owner?"])


def test_a_token_file_that_is_a_link_is_refused(knodel: Knodel, state: Path, tmp_path: Path) -> None:
    announce(state, "127.0.0.1:9")
    (tmp_path / "key").write_text("of something else")
    (state / TOKEN_FILE).unlink()
    (state / TOKEN_FILE).symlink_to(tmp_path / "key")
    with FolderLock(state), unix_sockets.listen(state / CONTROL_SOCKET):
        check(knodel("list"), 1, [str(state / TOKEN_FILE), "cannot be read"])
