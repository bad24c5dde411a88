"""Test following a log when the server ends the response before the log ends."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from clusters.base.objects import Object
from serving.client.api import ApiCalls
from serving.client.blocking import BlockingDriver
from serving.client.effects import HttpAnswer, HttpRequest
from serving.client.errors import NotConnected, Unreachable
from serving.client.http import ServerAddress
from serving.client.models.logs import logs
from serving.client.server import Server

POD: Object = {
    "metadata": {"name": "m-1", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "server"}]},
    "status": {"containerStatuses": [{"name": "server", "state": {"running": {}}, "restartCount": 0}]},
}
SERVER = cast(
    Server,
    SimpleNamespace(endpoint=ServerAddress("localhost", 80, "the platform", ""), credentials=dict, restart_window=10.0),
)
MODEL: Object = {"metadata": {"name": "m", "namespace": "default"}}


class ScriptedTransport:
    """A server with one replica and a list of responses for its log; the Model is deleted after the last one."""

    def __init__(self, *answers: list[bytes]) -> None:
        self._answers = list(answers)
        self._asked = False
        self.outages: list[Exception] = []
        self.tails: list[str | None] = []

    def exchange(self, request: HttpRequest) -> HttpAnswer:
        if "/pods" in request.target:
            if self._answers and len(self.tails) == 1 and self.outages:
                raise self.outages.pop()
            return _answer({"items": [POD] if self._answers else []})
        if self._asked:
            return _answer({"kind": "Status", "reason": "NotFound", "message": "gone"}, 404)
        self._asked = True
        return _answer(MODEL)

    def open(self, request: HttpRequest, silence: float | None) -> HttpAnswer:
        self.tails.append(parse_qs(urlsplit(request.target).query).get("tailLines", [None])[0])
        return HttpAnswer(200, "OK", {}, stream=iter(self._answers.pop(0)))

    def read_line(self, stream: Any) -> bytes:
        return next(stream, b"")

    def close(self, stream: Any) -> None:
        pass


def _answer(value: Object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, "", {}, json.dumps(value).encode())


def follow(transport: ScriptedTransport) -> list[tuple[str, bytes]]:
    calls = logs(ApiCalls(SERVER), "m", "default", follow=True, poll_interval=0.02)
    return [(replica, line) for replica, line, _ in BlockingDriver(transport).iterate(calls)]


def test_a_log_that_had_no_line_yet_is_read_from_its_beginning() -> None:
    transport = ScriptedTransport([], [b"first\n"])
    assert follow(transport) == [("m-1", b"first\n")]
    assert transport.tails == [None, None]


def test_a_log_whose_answer_ended_goes_on_behind_the_lines_that_came() -> None:
    transport = ScriptedTransport([b"first\n"], [b"second\n"])
    assert follow(transport) == [("m-1", b"first\n"), ("m-1", b"second\n")]
    assert transport.tails == [None, "0"]


def test_an_outage_after_a_response_does_not_end_following() -> None:
    transport = ScriptedTransport([b"first\n"], [b"second\n"])
    transport.outages = [Unreachable("the platform has stopped"), NotConnected("refused")]
    assert follow(transport) == [("m-1", b"first\n"), ("m-1", b"second\n")]
    assert transport.outages == []
