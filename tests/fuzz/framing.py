"""Raw bytes against a live server: each answer is a whole one below 500, each connection ends, the server lives.

And it has no fault of its own to tell of in its log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httptools
from hypothesis import strategies as st

from tests.fuzz.live import NAME, exchange, live_server
from tests.fuzz.messages import mutilated
from tests.fuzz.target import Target

INFER = f"/v2/models/{NAME}/infer"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "INT64", "shape": [2], "data": [1, -7]}]}).encode()
ANSWER = [1, -7]


def _post(body: bytes, path: str = INFER, headers: bytes = b"") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: m\r\nContent-Length: %d\r\n%s\r\n%s" % (path.encode(), len(body), headers, body)


GOOD = _post(BODY)
WHOLE = [
    GOOD,
    b"GET /v2/health/live HTTP/1.1\r\nHost: m\r\n\r\n",
    b"GET /v2/models/%2e%2e HTTP/1.1\r\nHost: m\r\nRange: bytes=0-1,2-3\r\n\r\n",
    _post(b'{"instances": [1]}', f"/v1/models/{NAME}:predict"),
    _post(b'{"instances": [1]}', f"/v1/models/{NAME}:predict", b"Accept: text/event-stream\r\n"),
    _post(b'{"x": [1]}', f"/v2/models/{NAME}/generate"),
    _post(b'{"inputs": [1]}', "/invocations"),
    _post(b"x\n1\n", "/invocations", b"Content-Type: text/csv\r\n"),
    _post(BODY, headers=b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"),
    _post(BODY, headers=b"Inference-Header-Content-Length: 20\r\n"),
    _post(b'{"instances": [1]}', f"/v1/models/{NAME}:predict", b"ce-id: 1\r\nce-source: /a\r\nce-type: t\r\n"),
    _post(b'{"specversion":"1.0"}', INFER, b"Content-Type: application/cloudevents+json\r\n"),
    b"POST %s HTTP/1.1\r\nHost: m\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    % (INFER.encode(), len(BODY), BODY),
    b"POST %s HTTP/1.1\r\nHost: m\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}" % INFER.encode(),
]
"""Requests as they should be, or nearly so."""
PARTS = [
    *(b"GET ", b"POST ", b"PRI * HTTP/2.0", b"/v2", b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b" HTTP/9.9\r\n", b"\r\n"),
    *(b"http://m/v2", INFER.encode(), b"Host: m\r\n", b"Host : m\r\n", b"X: 1\r\n 2\r\n", b"X:\0\r\n", b"\n", b"\r"),
    *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: identity\r\n"),
    *(b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Expect: 100-continue\r\n"),
    *(b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"ffffffffffffffff\r\n", b"-1\r\n", b"0\r\n\r\n", b"0\r\na: b\r\n\r\n"),
]
"""Of requests, to be put together in any order."""
STREAMS = st.one_of(
    st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3).map(b"".join),
    mutilated(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3).map(b"".join)),
    st.lists(st.sampled_from([*PARTS, GOOD]) | st.binary(max_size=4), max_size=12).map(b"".join),
)


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    """A stream of bytes, as it is cut into packets."""
    stream = draw(STREAMS)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    return [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) if begin < end]


_FRAMED = {b"content-length", b"transfer-encoding"}


@dataclass(slots=True)
class _Answer:
    """One answer; filled in by the parser."""

    status: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    whole: bool = False


class _Reader:
    """What httptools calls while it reads answers."""

    def __init__(self) -> None:
        self.answers: list[_Answer] = []
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        """An answer begins."""
        self.answers.append(_Answer())

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.answers[-1].headers += ((name.lower(), value),)

    def on_headers_complete(self) -> None:
        """Its head is here."""
        self.answers[-1].status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self.answers[-1].body += body

    def on_message_complete(self) -> None:
        """It is here."""
        self.answers[-1].whole = True


def read_answers(received: bytes) -> Sequence[_Answer]:
    """All answers of a connection that has ended, also such as announce another one (100). Raises HttpParserError."""
    reader = _Reader()
    reader.parser.feed_data(received)
    for answer in reader.answers[-1:]:
        answer.whole |= not _FRAMED & dict(answer.headers).keys()  # to HTTP/1.0 the end of the connection is the end
    return reader.answers


def check_answers(received: bytes) -> None:
    """Raise AssertionError unless these are whole answers, none of them the server's fault."""
    ended = False
    answers = read_answers(received)
    for answer in answers:
        assert not ended and (answer.whole or (answer is answers[-1] and _is_stream(answer))), received
        assert answer.status < 500, answer
        if answer.status >= 400:
            told = json.loads(answer.body)  # MLflow's paths have `message`
            assert isinstance(told.get("error", told.get("message")), str), answer
        ended = (b"connection", b"close") in answer.headers


class _Errors(logging.Handler):
    """What the server says of its own faults."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(self.format(record))


def _is_stream(answer: _Answer) -> bool:
    """Whether its receiver sees that it was broken off: by the end of the connection without the last chunk."""
    return (b"transfer-encoding", b"chunked") in answer.headers


@contextmanager
def checking() -> Iterator[Callable[[Sequence[bytes]], None]]:
    """The check of one connection, against a server of its own."""
    errors = _Errors()
    with live_server() as port, _attached(errors):

        def check(sent: Sequence[bytes]) -> None:
            errors.found.clear()
            check_answers(exchange(port, sent))
            (answer,) = read_answers(exchange(port, [GOOD]))
            assert json.loads(answer.body)["outputs"][0]["data"] == ANSWER
            assert not errors.found, errors.found[0]

        yield check


@contextmanager
def _attached(errors: _Errors) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "uvicorn.error")]
    for logger in loggers:
        logger.addHandler(errors)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(errors)


TARGETS = [Target("framing", pieces(), checking, 60)]
