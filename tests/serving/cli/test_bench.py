"""Test `knodel bench`: its usage, its report, and its limits."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from serving.cli.base.output import Output
from serving.cli.bench import show_report
from serving.loadtest.report import Report, Row
from serving.types.settings.state import Facts
from tests.serving.cli.conftest import Knodel, Served, check
from tests.support.chat_server import ChatServer, chat_server

SHORT = ("--kind", "chat", "--rate", "20", "--duration", "1s")


@pytest.fixture
def model(served: Served, state: Path) -> Iterator[ChatServer]:
    """Run a language model behind the gateway of the platform."""
    facts = Facts.read(state)
    assert facts is not None
    with chat_server() as server:
        replace(facts, gateway=urlsplit(server.url).netloc).write()
        yield server


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("../llm",), ["NAME:"]),
        (("llm", "--rate", "0"), ["--rate must be requests per second"]),
        (("llm", "--rate", "-1"), ["--rate must be"]),
        (("llm", "--duration", "0s"), ["--duration must be from 1s to 24h"]),
        (("llm", "--max-p95", "soon"), ["--max-p95 must be a duration"]),
        (("llm", "--max-errors", "101"), ["--max-errors must be per cent"]),
        (("llm", "--shape", "trace"), ["--trace FILE belong together"]),
        (("llm", "--trace", "t.csv"), ["--trace FILE belong together"]),
        (("llm", "--shape", "trace", "--trace", "no.csv"), ["--trace no.csv: cannot be read as a trace"]),
        (("llm", "--body", "no.json"), ["--body no.json cannot be read"]),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(
    knodel: Knodel, arguments: tuple[str, ...], words: list[str]
) -> None:
    check(knodel("bench", *arguments), 2, words)


def test_without_locust_the_message_has_the_command_that_installs_it(
    knodel: Knodel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    check(knodel("bench", "llm"), 1, ["`knodel bench` needs the package locust", "install 'knodel[bench]'"])


async def test_an_absent_model_and_platform_are_named(served: Served, model: ChatServer, tmp_path: Path) -> None:
    check(await served.knodel("bench", "other"), 3, ["model other not found in namespace default"])
    check(await served.knodel("bench", "llm", "--tag", "blue"), 3, ["model llm"])
    check(await served.knodel("bench", "llm", "--state", str(tmp_path / "none")), 1, ["no platform runs on"])


async def test_the_table_has_percentiles_by_version(served: Served, model: ChatServer) -> None:
    done = await served.knodel("bench", "llm", *SHORT)

    assert done.code == 0, done.err
    head, *rows, last = done.out.splitlines()
    assert head.split()[:4] == ["VERSION", "KIND", "REQUESTS", "ERRORS"]
    assert [row.split()[:2] for row in rows] == [
        [version, kind] for version in ("llm-00001", "total") for kind in ("chat", "TTFT", "TPOT")
    ]
    assert "requests per second for 1 s; the load was 20.0" in last
    assert {head["Host"] for head in model.heads} == {"llm.default.localhost"}


async def test_a_missed_limit_is_an_error_after_the_report(served: Served, model: ChatServer, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"messages": [{"role": "user", "content": "ill"}]}))

    done = await served.knodel("bench", "llm", *SHORT, "--body", str(body), "-o", "json")

    assert done.code == 1
    report = done.value()
    assert (report["model"], report["kind"], report["shape"]) == ("llm", "chat", "steady")
    [error] = report["errors"]
    assert error.endswith("500: out of memory")
    assert done.err.startswith("knodel: ")
    assert "requests failed, 100 % (limit 0 %)" in done.err


def test_a_rate_that_was_not_reached_is_mentioned(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row("m-00001", "infer", 36, 2, 1.0, 2.0, 3.0, 4.0)
    errors = {f"m-00001: 500: {number}": 1 for number in range(9)}

    show_report(Output("table"), Report(3.0, 20.0, 12.0, [row], errors))

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["m-00001", "infer", "36", "2", "1", "2", "3", "4"]
    assert lines[2].startswith("12.0 requests per second for 3 s; the load was 20.0, which was not reached: ")
    assert lines[3:] == [f"1 times: m-00001: 500: {number}" for number in range(5)]
