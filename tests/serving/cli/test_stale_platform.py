"""Test the files of a killed platform: no command sends the token to another process at its address."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusters.embedded.store.lock import FolderLock
from clusters.net import unix_sockets
from serving.types.settings.state import CONTROL_SOCKET, TOKEN_FILE
from tests.serving.cli.conftest import Knodel, announce, check
from tests.serving.cli.kube import TOKEN

STRANGER = 65534  # nobody
VERBS = [("list",), ("get", "magika"), ("doctor",), ("events", "list"), ("wait", "magika", "--timeout", "1s")]


@contextmanager
def eavesdropper() -> Iterator[tuple[str, bytearray]]:
    """Run a TCP listener that keeps all received bytes; yield its address."""
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

    check(knodel("list"), 1, ["no platform runs on", str(state), "`knodel up --detach"])


def test_the_advice_after_a_kill_keeps_the_ports(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9381", "127.0.0.1:9380")
    check(knodel("list"), 1, ["start one with `knodel up --detach --port 9380`"])
    announce(state, "127.0.0.1:9999", "127.0.0.1:9380", tls="127.0.0.1:9381")
    check(knodel("list"), 1, ["`knodel up --detach --port 9380 --control-port 9999`"])
    announce(state, "127.0.0.1:9381", "127.0.0.1:9380", tls="127.0.0.1:9443")
    check(knodel("list"), 1, ["`knodel up --detach --port 9380 --control-tls-port 9443`"])
    announce(state, "127.0.0.1:8081", "127.0.0.1:8080", tls="127.0.0.1:8443")
    check(knodel("list"), 1, ["`knodel up --detach`"])

    announce(state, "127.0.0.1:9381", "127.0.0.1:9380")
    assert "`knodel up --detach --port 9380` starts it again" in knodel("doctor").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("mode", [0o700, 0o755], ids=oct)
@pytest.mark.parametrize("verb", [("list",), ("logs", "iris"), ("up", "--detach"), ("down",)], ids=" ".join)
def test_a_state_folder_of_another_user_is_an_error(knodel: Knodel, mode: int, verb: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        state = Path(parent) / "state"
        state.mkdir(mode)
        state.chmod(mode)
        with FolderLock(state):
            os.seteuid(STRANGER)
            try:
                done = knodel(*verb, "--state", str(state))
            finally:
                os.seteuid(0)

    check(done, 1, [f"the state folder {state} belongs to user 0", "choose another one with --state or KNODEL_STATE"])


def test_the_settings_of_a_platform_with_other_ports_are_not_called_in_force(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9281", "127.0.0.1:9280")
    without = knodel("config")
    with FolderLock(state):
        (state / "lock").write_text(f"{os.getpid()}\n")
        done = knodel("config")

    assert (without.code, without.err) == (done.code, "") == (0, "")
    assert "runs with other settings: gateway 127.0.0.1:9280" in done.err
    assert done.value()["gateway"]["port"] == 8080
    assert "in force" not in knodel("config", "--help").out


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
        check(knodel("list"), 1, [str(state / TOKEN_FILE), "run the command as the owner"])


def test_a_token_file_that_is_a_link_is_refused(knodel: Knodel, state: Path, tmp_path: Path) -> None:
    announce(state, "127.0.0.1:9")
    (tmp_path / "key").write_text("of something else")
    (state / TOKEN_FILE).unlink()
    (state / TOKEN_FILE).symlink_to(tmp_path / "key")
    with FolderLock(state), unix_sockets.listen(state / CONTROL_SOCKET):
        check(knodel("list"), 1, [str(state / TOKEN_FILE), "cannot be read"])
