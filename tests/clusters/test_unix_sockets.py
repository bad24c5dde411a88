"""Unix sockets of the platform: paths of any length, and connections only between processes of one user."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from clusters.net import unix_sockets

LONGEST_ADDRESS = 107  # bytes, of unix(7)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A socket's path that is longer than a socket's address may be."""
    folder = tmp_path / ("deep" * 40)
    folder.mkdir()
    path = folder / "control.sock"
    assert len(os.fsencode(path)) > LONGEST_ADDRESS
    return path


def test_a_socket_at_a_long_path_is_listened_on_and_reached(deep: Path) -> None:
    with unix_sockets.listen(deep) as listener, unix_sockets.connect(deep, 5.0) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"hello")
            assert server.recv(5) == b"hello"


async def test_a_socket_at_a_long_path_is_reached_by_a_stream(deep: Path) -> None:
    with unix_sockets.listen(deep) as listener:
        reader, writer = await unix_sockets.open_connection(deep)
        server, _ = listener.accept()
        with server:
            server.sendall(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()


async def test_a_socket_at_a_long_path_is_served_and_stays_when_its_server_closes(deep: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await unix_sockets.serve(unix_sockets.listen(deep), echo)
    reader, writer = await unix_sockets.open_connection(deep)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    server.close()
    assert deep.exists(), "a server that took over may listen there"


def test_a_socket_takes_the_place_of_a_former_one_and_is_closed_to_others(deep: Path) -> None:
    unix_sockets.listen(deep).close()
    with pytest.raises(ConnectionRefusedError):
        unix_sockets.connect(deep)

    with unix_sockets.listen(deep), unix_sockets.connect(deep):
        assert stat.S_IMODE(deep.stat().st_mode) == 0o600


def test_both_ends_know_the_process_at_the_other(deep: Path) -> None:
    with unix_sockets.listen(deep) as listener, unix_sockets.connect(deep) as client:
        server, _ = listener.accept()
        with server:
            own = (os.getpid(), os.geteuid())
            assert unix_sockets.peer_of(client) == own
            assert unix_sockets.peer_of(server) == own


def test_no_descriptor_is_left_open(deep: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        unix_sockets.connect(deep)
    with pytest.raises(FileNotFoundError):
        unix_sockets.listen(deep.parent / "none" / "control.sock")
    with socket.socket():
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
