"""One HTTP exchange with a platform of this machine, bounded in time and size whatever is on the other end."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from serving.cli.errors import CommandError

LONGEST_ANSWER = 64 * 1024 * 1024  # bytes; an endless body must not fill memory
LONGEST_LINE = 4 * 1024 * 1024  # bytes of one line of a stream: an object has 3 MiB at most
FOREIGN = "is something else on its port?"


class Answer:
    """An answer whose head has come."""

    def __init__(self, response: http.client.HTTPResponse, where: str, late: threading.Event) -> None:
        self.status = response.status
        self.phrase = response.reason
        self.headers = response.headers
        self._response = response
        self._where = where
        self._late = late

    def body(self) -> bytes:
        """The whole body. Raises CommandError for one that is too large."""
        content = self._response.read(LONGEST_ANSWER + 1)
        _check_in_time(self._late)  # without Content-Length, what was cut off looks complete
        if len(content) > LONGEST_ANSWER:
            raise CommandError(f"the answer of {self._where} is larger than {LONGEST_ANSWER} bytes: {FOREIGN}")
        return content

    def lines(self) -> Iterator[bytes]:
        """The body line by line, as it comes. Raises CommandError for a line that is too long."""
        while line := self._response.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise CommandError(f"a line of {self._where} is longer than {LONGEST_LINE} bytes: {FOREIGN}")
            yield line


@contextmanager
def exchange(
    address: tuple[str, int],
    what: str,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str],
    timeout: float,
    stream: bool = False,
    silence: float | None = None,
) -> Iterator[Answer]:
    """Send a request and yield its answer, which is complete within `timeout` seconds, however slowly it drips.

    With `stream` only its head must be; then it may go on for ever, and be silent for `silence` seconds (None: for
    ever). `what` names the other end in messages. Raises CommandError when it does not answer in time, or breaks off.
    """
    host, port = address
    where = f"{what} at {host}:{port}"
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    late = threading.Event()
    try:
        connection.connect()
        sock: socket.socket = connection.sock
        with _cut_after(timeout, sock, late) as timer:
            connection.request(method, target, body, dict(headers))
            answer = Answer(connection.getresponse(), where, late)
            _check_in_time(late)
            if stream:
                timer.cancel()
                sock.settimeout(silence)
            yield answer
    except (OSError, http.client.HTTPException) as error:
        reason = f"not within {timeout:g} s" if late.is_set() else str(error) or error.__class__.__name__
        raise CommandError(
            f"{where} does not answer ({reason}): `knodel doctor` looks for the cause, `knodel up --detach` starts it"
        ) from error
    finally:
        connection.close()


@contextmanager
def _cut_after(seconds: float, sock: socket.socket, late: threading.Event) -> Iterator[threading.Timer]:
    """End the exchange from outside: a drip of bytes never runs into the timeout of a socket."""
    timer = threading.Timer(seconds, _cut, (sock, late))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _check_in_time(late: threading.Event) -> None:
    if late.is_set():
        raise TimeoutError


def _cut(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other end was faster
