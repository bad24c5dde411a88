"""Raw bytes as what a store answers: a download ends, with the bytes whose digest it tells or with a StorageError."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from hypothesis import strategies as st

from serving.storage.base.digest import of_bytes
from serving.storage.base.errors import StorageError
from serving.storage.transfer import retry
from serving.storage.transfer.client import StoreRequest
from serving.storage.transfer.downloader import Download, Downloader
from serving.storage.transfer.limits import TransferDeadline, TransferLimits
from tests.fuzz.messages import mutilated
from tests.fuzz.target import Target

HOST: Final = "127.0.0.1"
MOST: Final = 1000  # bytes of the file
LIMITS: Final = TransferLimits(connect=2.0, silence=2.0, total=5.0, retries=1, pause=0.0)
SEPARATOR: Final = b"\xff\xfe\xfd"  # between what is answered to one connection and to the next
_REQUEST_END: Final = b"\r\n\r\n"
_PIECE: Final = 1 << 16  # bytes
_getaddrinfo = socket.getaddrinfo

_OK = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 5\r\n\r\nhello'
_CUT = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 5\r\n\r\nhe'
_REST = b'HTTP/1.1 206 Partial Content\r\nETag: "1"\r\nContent-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\nllo'
WHOLE: Final = [
    _OK,
    _CUT + SEPARATOR + _REST,
    _CUT + SEPARATOR + b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n" + SEPARATOR + _OK,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + _OK,
    b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n" + SEPARATOR + _OK,
    b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n\r\n" + SEPARATOR + _OK,
    b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * (MOST + 1),
]
INPUTS = st.one_of(st.sampled_from(WHOLE), mutilated(st.sampled_from(WHOLE)), st.binary(max_size=300))


@contextmanager
def checking() -> Iterator[Callable[[bytes], None]]:
    """The check of one input, against a store that answers with its bytes."""
    quiet = patch.object(retry.log, "disabled", True)
    with socket.create_server((HOST, 0)) as listener, patch("socket.getaddrinfo", _loopback_only), quiet:
        answers: list[bytes] = []
        thread = threading.Thread(target=_answer, args=(listener, answers), daemon=True)
        thread.start()

        def check(data: bytes) -> None:
            answers[:] = data.split(SEPARATOR)
            check_download(listener.getsockname()[1])

        yield check
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def check_download(port: int) -> None:
    """Download. Raises AssertionError, or what is no StorageError, when a promise is broken."""
    deadline = TransferDeadline("uri", LIMITS.total)
    downloader = Downloader(frozenset({HOST}), deadline, LIMITS, sleep=lambda seconds: None)
    request = StoreRequest(f"http://{HOST}:{port}/m", "uri", secrets={"Authorization": "Bearer secret"})
    with tempfile.TemporaryDirectory() as folder, closing(downloader):
        path = Path(folder, "parts", "0")
        try:
            found = downloader.save(Download("uri", lambda: request, path, most=MOST))
        except StorageError as error:
            assert "\n" not in str(error) and "secret" not in str(error) and folder not in str(error), error
        else:
            assert found == of_bytes(path.read_bytes())
        assert not path.exists() or path.stat().st_size <= MOST
    assert deadline.left > 0


def _loopback_only(host: str, *rest: Any, **more: Any) -> list[Any]:
    """In place of `socket.getaddrinfo`: a redirect may name any host, and nobody is to be asked where it is."""
    if host != HOST:
        raise socket.gaierror(socket.EAI_NONAME, "not known")
    return _getaddrinfo(host, *rest, **more)


def _answer(listener: socket.socket, answers: list[bytes]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it was closed
            return
        with connection:
            try:
                _read_request(connection)
                connection.sendall(answers.pop(0) if answers else b"")
            except OSError:  # the caller has heard enough
                continue


def _read_request(connection: socket.socket) -> None:
    received = b""
    while _REQUEST_END not in received and (piece := connection.recv(_PIECE)):
        received += piece


TARGETS = [Target("download", INPUTS, checking, 100)]
