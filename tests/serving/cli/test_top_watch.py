"""Test `knodel top --watch`: the load of models, on terminals and elsewhere, by the pages of their replicas."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from autoscaler.metrics.revision_page import RevisionView, revision_families
from autoscaler.usage.meter import Spent
from clusters.base.objects import ANNOTATION_PORTS, MODEL, POD, Key, timestamp
from serving.cli.verbs.models.top_watch import decision_of
from tests.serving.cli.conftest import Config, Served, check
from tests.serving.cli.kube import FakeApi, Reply
from tests.serving.cli.test_top import add_autoscaler
from tests.support.terminal import running

NOW = datetime.now(UTC)
FAST = "-56"  # the bucket of 7.8 ms


class Replica:
    """The management port of a replica whose requests grow with each reading."""

    def __init__(self, requests: int, errors: int) -> None:
        self._requests, self._errors, self._turn = requests, errors, 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def page(self, path: str) -> dict[str, Any]:
        """Return a page. That of the responses adds the requests of one turn."""
        if path.endswith("/stats"):
            return {"busySeconds": 1.0, "requests": 1, "active": 2, "queued": 3}
        self._turn += 1
        requests, errors = self._requests * self._turn, self._errors * self._turn
        return {"process": "p", "requests": requests, "errors": errors, "latency": {FAST: requests}}

    def _handler(self) -> Callable[..., BaseHTTPRequestHandler]:
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(replica.page(self.path)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        return Handler


@pytest.fixture
def replica() -> Iterator[Replica]:
    made = Replica(1_000, 250)
    yield made
    made.server.shutdown()
    made.server.server_close()


def pod(model: str, port: int) -> dict[str, Any]:
    """Return a ready Pod of a Model, whose management port is a real one of this machine."""
    annotations = {ANNOTATION_PORTS: json.dumps({"9095": port})}
    metadata = {"name": f"{model}-00001-x", "namespace": "default", "labels": {"knodel.dev/model": model}}
    status = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {**metadata, "annotations": annotations}, "spec": {"containers": []}, "status": status}


def decision(seconds: float = 12.0) -> dict[str, Any]:
    at = timestamp(datetime.now(UTC) - timedelta(seconds=seconds))
    return {"at": at, "from": 1, "to": 2, "revision": "iris-00001", "reasons": [{"rule": "Waiting", "message": "m"}]}


@pytest.fixture
async def two(served: Served, replica: Replica) -> AsyncIterator[Served]:
    """Deploy `iris` with a replica under load, and `asleep` with requests that wait at the activator."""
    for name in ("asleep", "iris"):
        await served.deploy(name)
    made = pod("iris", replica.server.server_port)
    await served.cluster.create(POD, made, manager="test")
    await served.cluster.patch(
        POD, "iris-00001-x", {"status": made["status"]}, "default", manager="test", subresource="status"
    )
    await served.set_status("iris", {"replicas": {"desired": 2, "ready": 1}, "decisions": [decision()]})
    await add_autoscaler(served, "asleep-00001", "asleep", Spent())
    waiting = RevisionView(Key("default", "asleep-00001"), desired=1, current=0, ready=0, slots_in_use=7.0, queued=7)
    served.metrics = [*revision_families([waiting])]
    yield served


async def test_a_terminal_gets_the_load_redrawn_until_q(two: Served) -> None:
    with running("top", "-w", "--interval", "300ms", tty=True, typed=True, columns=120) as command:
        await asyncio.to_thread(command.until, "25.00%")
        command.type("xq")
        shown = await asyncio.to_thread(command.end)

    assert shown.code == 0
    last = shown.frames[-1]
    assert "2 models, 1 replicas" in last[0]
    assert last[1].split() == ["MODEL", "REPLICAS", "REQ/S", "P50", "P99", "ERRORS", "BUSY", "QUEUE", "DECISION"]
    row = last[2].split()
    assert row[:2] == ["iris", "1/2"]
    assert float(row[2]) > 500  # 1000 in each interval of 0.3 s, on a machine that is busy
    assert row[3:][:7] == ["7.8", "ms", "7.8", "ms", "25.00%", "2", "3"]
    assert "1 → 2 Waiting, " in last[2]
    assert last[3].split()[:8] == ["asleep", "0/0", "0", "-", "-", "-", "0", "7"]
    assert "xq" not in shown.raw


async def test_ctrl_c_ends_it_and_the_terminal_is_as_before(two: Served) -> None:
    with running("top", "--watch", tty=True, typed=True) as command:
        await asyncio.to_thread(command.until, "iris")
        shown = await asyncio.to_thread(command.interrupt)

    assert shown.code == 130
    assert all(len(line) <= 80 for frame in shown.frames for line in frame)


async def test_a_pipe_gets_a_block_for_each_interval(two: Served) -> None:
    with running("top", "-w", "--interval", "300ms", "--sort", "name", tty=False) as command:
        await asyncio.to_thread(command.until, "25.00%")
        shown = await asyncio.to_thread(command.interrupt)

    first, second, *_ = shown.raw.split("\n\n")
    assert "\x1b" not in shown.raw
    for block in (first, second):
        title, head, *rows = block.strip().splitlines()
        assert "2 models" in title and head.startswith("MODEL")
        assert [row.split()[0] for row in rows] == ["asleep", "iris"]
    assert first.splitlines()[3].split()[2] == "-"  # the first reading has nothing to compare with


async def test_json_is_a_line_for_each_interval(two: Served) -> None:
    with running("top", "-w", "--interval", "300ms", "-o", "json", tty=False) as command:
        await asyncio.to_thread(command.until, '"errorShare": 0.25')
        shown = await asyncio.to_thread(command.interrupt)

    first, *_, last = [json.loads(line) for line in shown.lines if line.endswith("}")]
    assert first["models"][1]["requestsPerSecond"] is None
    asleep, iris = last["models"]
    assert (asleep["queued"], iris["queued"], iris["busy"]) == (7, 3, 2)
    assert iris["p99Seconds"] == pytest.approx(0.0078125)
    assert iris["decisions"][0]["to"] == 2


async def test_a_deleted_model_leaves_the_view(two: Served) -> None:
    with running("top", "-w", "--interval", "300ms", tty=True) as command:
        await asyncio.to_thread(command.until, "asleep")
        await two.cluster.delete(MODEL, "asleep", "default")
        await asyncio.to_thread(command.until, "1 models")
        shown = await asyncio.to_thread(command.interrupt)

    assert not any(line.startswith("asleep") for line in shown.frames[-1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--interval", "5s"], ["--interval requires --watch"]),
        (["--sort", "queue"], ["--sort requires --watch"]),
        (["-w", "--period", "month"], ["--period is for costs"]),
        (["-w", "--interval", "0s"], ["--interval '0s'", "0.2 to 3600"]),
        (["-w", "--interval", "soon"], ["--interval 'soon'"]),
    ],
)
async def test_options_that_do_not_fit_are_refused(served: Served, options: list[str], words: list[str]) -> None:
    check(await served.knodel("top", *options), 2, words)


def test_a_decision_is_shown_in_a_few_words() -> None:
    model = {"status": {"decisions": [{**decision(), "at": timestamp(NOW - timedelta(seconds=65))}]}}
    assert decision_of(model, NOW) == "1 → 2 Waiting, 1m05s ago"
    assert decision_of({"status": {"decisions": [{"at": "never", "from": 2, "to": 0}]}}, NOW) == "2 → 0"
    assert decision_of({}, NOW) == ""


@pytest.mark.parametrize("is_allowed", [True, False])
def test_on_kubernetes_replicas_are_read_through_the_api_server(
    api: FakeApi, config: Config, replica: Replica, is_allowed: bool
) -> None:
    config()
    model = {"metadata": {"name": "iris", "namespace": "default"}, "status": {"replicas": {"desired": 1, "ready": 1}}}

    def script(request: Any) -> Reply:
        if "/proxy/" in request.path and not is_allowed:
            status = {"kind": "Status", "reason": "Forbidden", "message": "cannot get pods/proxy", "code": 403}
            return Reply(403, status)
        if "/pods/iris-00001-x:9095/proxy/stats" in request.path:
            return Reply(200, replica.page(request.path))
        items = {"models": [model], "pods": [pod("iris", 1)]}.get(request.path.rpartition("/")[2], [])
        return Reply(200, {"kind": "List", "items": items})

    api.script = script
    with running("top", "-w", "--interval", "300ms", "--kube-context", "lab", tty=True, columns=120) as command:
        command.until("25.00%" if is_allowed else "cannot get pods/proxy")
        assert command.interrupt().code == 130
