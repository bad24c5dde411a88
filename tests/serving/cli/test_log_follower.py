"""Test following a log when the server ends the response before the log ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from clusters.base.objects import MODEL, Object
from serving.cli.verbs.models.log_follower import LogFollower
from serving.client.client import Client

POD: Object = {
    "metadata": {"name": "m-1", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "server"}]},
    "status": {"containerStatuses": [{"name": "server", "state": {"running": {}}, "restartCount": 0}]},
}


class ScriptedClient:
    """A client with one replica and a list of responses for its log; the Model is deleted after the last one."""

    def __init__(self, *answers: list[bytes]) -> None:
        self._answers = list(answers)
        self.tails: list[str | None] = []

    def list(self, kind: Any, namespace: str, selector: str) -> dict[str, list[Object]]:
        return {"items": [POD] if self._answers else []}

    def exists(self, kind: Any, name: str, namespace: str) -> bool:
        assert kind is MODEL
        return False

    def log_path(self, namespace: str, pod: str) -> str:
        return pod

    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        self.tails.append(query.get("tailLines"))
        yield from self._answers.pop(0)


def follow(client: ScriptedClient) -> list[bytes]:
    lines: list[bytes] = []
    LogFollower(
        cast(Client, client), "default", "m", "", tail=None, write=lines.append, warn=lambda _: None, poll_interval=0.02
    ).run()
    return lines


def test_a_log_that_had_no_line_yet_is_read_from_its_beginning() -> None:
    client = ScriptedClient([], [b"first\n"])
    assert follow(client) == [b"[m-1] first\n"]
    assert client.tails == [None, None]


def test_a_log_whose_answer_ended_goes_on_behind_the_lines_that_came() -> None:
    client = ScriptedClient([b"first\n"], [b"second\n"])
    assert follow(client) == [b"[m-1] first\n", b"[m-1] second\n"]
    assert client.tails == [None, "0"]
