"""The webhook before there are EventSources: nobody may, nothing is read, and it says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from clusters.manager.http import Request
from eventing.main import answer, main
from tests.support.ports import free_ports
from tests.support.replicas import replica, until_ready


@pytest.mark.parametrize("path", ["/events", "/events/mlflow"])
def test_an_event_is_answered_401_with_the_reason_and_the_remedy(path: str) -> None:
    response = answer(Request("POST", path))

    assert response.status == 401
    assert "EventSource" in response.body
    assert "knodel deploy" in response.body
    assert response.headers["WWW-Authenticate"]


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "DELETE"])
def test_other_methods_are_405_and_other_paths_404(method: str) -> None:
    assert answer(Request(method, "/events")).status == 405
    assert answer(Request(method, "/events")).headers["Allow"] == "POST"
    assert answer(Request(method, "/eventsource")).status == 404


async def test_the_process_answers_probes_and_events_and_ends_when_asked(tmp_path: Path) -> None:
    [port] = free_ports(1)
    async with replica("eventing.main", [], tmp_path, PORT=str(port)) as webhook:
        await until_ready(webhook)
        async with aiohttp.request("POST", f"http://127.0.0.1:{port}/events", data=b"x" * 1000) as refused:
            assert refused.status == 401
        assert (await webhook.metrics())["process_open_fds"] > 0

        assert await asyncio.wait_for(webhook.end(), 5) == 0


def test_a_port_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"PORT": "many"}) == 2
    assert "PORT='many'" in capsys.readouterr().err
