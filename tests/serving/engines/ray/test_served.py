"""A real Ray Serve application behind the model server. One start for all tests: it takes 15 s of CPU."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.support.ray_served import STARTS_WITHIN, RayServed, ray_served

pytestmark = pytest.mark.timeout(STARTS_WITHIN + 60)


@pytest.fixture(scope="module")
def served() -> Iterator[RayServed]:
    with tempfile.TemporaryDirectory() as folder, ray_served(Path(folder)) as made:
        made.await_ready()
        yield made


def test_a_request_goes_through_deployments_by_the_application_s_own_path(served: RayServed) -> None:
    assert served.ask("/add", b'{"number": 1}').json == {"sum": 3}


def test_a_model_of_many_is_chosen_by_ray_s_header(served: RayServed) -> None:
    answers = [served.ask("/multiplexed", serve_multiplexed_model_id=name).body for name in ("a", "b", "a")]
    assert answers == [b"a:1", b"b:2", b"a:1"]


def test_everything_is_passed_on_and_back_byte_for_byte(served: RayServed) -> None:
    answer = served.ask(
        "/any/p%20ath?x=1&y=%2F", b"\x00\xff", method="PUT", authorization="Bearer mine", accept="a/b", cookie="c=1"
    )
    told = answer.json
    headers = dict(told["headers"])
    assert (answer.status, answer.headers["x-own"]) == (418, "1")
    assert (told["method"], told["path"], told["query"], told["body"]) == ("PUT", "/any/p ath", "x=1&y=%2F", "00ff")
    assert (headers["authorization"], headers["accept"], headers["cookie"]) == ("Bearer mine", "a/b", "c=1")
    assert "x-knodel-engine-key" not in headers


@pytest.mark.parametrize("path", ["/", "/openapi.json", "/v1/models", "/v2/models/other", "/v1/chat/completions"])
def test_all_paths_but_those_of_health_are_the_application_s(served: RayServed, path: str) -> None:
    assert served.ask(path).json["path"] == path
    assert served.ask("/v2/models/own/infer", b"{}").json == {"outputs": []}
    assert served.ask("/v2/health/ready").json == {"ready": True}


def test_a_stream_comes_piece_by_piece(served: RayServed) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/stream?count=20")
    response = connection.getresponse()
    first = response.readline()
    began = time.monotonic()
    rest = response.read()
    connection.close()
    assert first + rest == b"".join(b"%d\n" % number for number in range(20))
    assert time.monotonic() - began > 0.5  # 20 pieces, 0.05 s apart: the first came before the last was made


def test_the_port_behind_the_server_refuses_others(served: RayServed) -> None:
    ports = _listening(served.session)
    answers = {port: answer for port in ports if (answer := _status(served, port)) is not None}
    assert 403 in answers.values()
    assert 418 not in answers.values(), answers


def test_the_slots_are_those_of_the_ingress_deployment(served: RayServed) -> None:
    assert "the engine takes 7 requests at once" in served.log.read_text()
    done: list[int] = []
    threads = [Thread(target=lambda: done.append(served.ask("/sleep?seconds=1").status)) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [204] * 8
    assert time.monotonic() - began > 1.9  # max_ongoing_requests is 7: the eighth waits in the server's queue


def _listening(session: int) -> list[int]:
    """Return the TCP ports of all processes of a session."""
    from tests.support.ray_served import members_of

    inodes = set()
    for member in members_of(session):
        for link in Path(f"/proc/{member.pid}/fd").iterdir():
            try:
                target = str(link.readlink())
            except OSError:
                continue
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return sorted({int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes})


def _status(served: RayServed, port: int) -> int | None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/any")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None  # it does not speak HTTP/1.1
    finally:
        connection.close()
