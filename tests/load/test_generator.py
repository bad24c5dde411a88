"""Test the load generator on loopback: its requests, their times, and the recorded responses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from loadtests.load.generator import Generator
from loadtests.load.plan import NO_RESPONSE, RESPONSES, WRONG_BODY, Plan
from loadtests.load.responses import Responses, read_responses

BODY = '{"x": 1}'
STALL = 3.0  # s that the scripted server takes for its first answer


@asynccontextmanager
async def scripted(responses: list[bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these responses in turn, b"" being none (it hangs up), and after them the last one; the first
    comes late. Yields its address and the requests that it got.
    """
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(65536):
            number = len(asked)
            asked.append(head)
            if number == 0:
                await asyncio.sleep(STALL)
            response = responses[min(number, len(responses) - 1)]
            if not response:
                break
            writer.write(response)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/infer", asked


def http(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


async def test_every_request_is_sent_when_due_and_its_latency_counts_from_then(tmp_path: Path) -> None:
    """One run of locust shows all: it takes a second to start."""
    responses = [
        http("200 OK", "two"),
        http("200 OK", "three"),
        http("503 Busy", "come, later"),
        b"",
        http("200 OK", "2"),
    ]
    async with scripted(responses) as (url, asked):
        plan = Plan(url, {"Host": "m.default.localhost"}, BODY, ["two", "2"], [0.0, 0.1, 0.2, 0.3, 0.5], patience=5.0)
        with Generator(plan, tmp_path) as generator:
            began = await asyncio.to_thread(generator.start_time)
            found = await asyncio.to_thread(generator.responses)

    assert found.status.tolist() == [200, WRONG_BODY, 503, NO_RESPONSE, 200]
    assert found.began == began
    assert found.which.tolist() == [0, -1, -1, -1, 1]
    assert found.due.tolist() == list(plan.arrivals)
    assert found.took[0] >= STALL  # nobody waited for it: the other four were answered before
    assert (found.due + found.took)[1:4].max() < STALL
    assert "come; later" in found.errors[2]
    assert all(b"Host: m.default.localhost\r\n" in one or b"host: m.default.localhost\r\n" in one for one in asked)
    assert all(one.endswith(BODY.encode()) for one in asked)


async def test_a_generator_ends_with_its_context(tmp_path: Path) -> None:
    plan = Plan("http://127.0.0.1:9/", {}, BODY, [], [100.0])
    with Generator(plan, tmp_path) as generator:
        pid = generator.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_responses_of_another_version_are_rejected(tmp_path: Path) -> None:
    (tmp_path / RESPONSES).write_text("1.0\ndue,took\n")
    with pytest.raises(ValueError, match="written by another version"):
        read_responses(tmp_path)


def made(*rows: tuple[float, float, int]) -> Responses:
    due, took, status = (np.array(column) for column in zip(*rows, strict=True))
    return Responses(
        0.0, due, took, status, np.zeros(len(due), np.int64), ["" if code == 200 else "gone" for code in status]
    )


def test_failures_are_counted_and_not_part_of_the_latency() -> None:
    found = made((0.0, 0.1, 200), (1.0, 0.001, 503), (2.0, 0.3, 200), (3.0, 0.2, 200))
    assert (found.failed, found.success_rate) == (1, 0.75)
    assert found.quantile(0.0) == 100.0
    assert found.quantile(0.95) == 300.0
    assert found.faults() == [("503 gone", 1)]
    assert found.between(1.0, 3.0).status.tolist() == [503, 200]
    assert found.rate == pytest.approx(4 / 3.2)


def test_the_worst_stretch_is_the_longest_sequence_of_failures() -> None:
    found = made((0.0, 0.0, 503), (1.0, 0.0, 200), (2.0, 0.0, 0), (3.0, 0.0, 503), (4.5, 0.0, 0), (5.0, 0.0, 200))
    assert found.worst_stretch() == 2.5
    assert made((0.0, 0.0, 503), (1.0, 0.0, 200)).worst_stretch() == 0.0
