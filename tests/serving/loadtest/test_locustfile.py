"""Test the locust file in processes of their own, since locust patches the standard library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serving.cli.bench import LOCUSTFILE
from tests.support.chat_server import chat_server

CHECKOUT = Path(__file__).parents[3] / "loadtests" / "locustfile.py"
HEADLESS = ("--headless", "--only-summary", "--run-time", "2")


def locust(*arguments: str, file: Path = CHECKOUT, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run locust to its end."""
    command = [sys.executable, "-m", "locust", "-f", str(file), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("file", [CHECKOUT, LOCUSTFILE])
def test_both_paths_have_the_users(file: Path) -> None:
    listed = locust("--list", file=file)

    assert listed.returncode == 0, listed.stderr
    assert set(listed.stdout.split()) == {"Available", "Users:", "InferUser", "ChatUser"}
    assert "Traceback" not in listed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "m", "--rate", "0"), "argument --rate: must be requests per second such as 50"),
        (("--model", "m"), "no server is given: use -H URL"),
        (("-H", "http://127.0.0.1:9"), "no model is given: use --model NAME"),
        (("-H", "localhost", "--model", "m"), "localhost is not a URL of a server"),
        (("-H", "http://127.0.0.1:9", "--model", "m"), "the server at 127.0.0.1:9 does not respond"),
    ],
)
def test_a_wrong_call_has_one_message_and_fails(arguments: tuple[str, ...], message: str) -> None:
    done = locust(*HEADLESS, *arguments)

    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_a_chat_has_rows_of_its_version_and_a_missed_limit_is_the_exit_code(tmp_path: Path) -> None:
    options = ("--model", "llm", "--kind", "chat", "--rate", "20", "--report", str(tmp_path / "report.json"))
    with chat_server() as server:
        done = locust(*HEADLESS, "-H", server.url, *options, "--max-p95", "0.001")

    assert done.returncode == 1, done.stderr
    assert "(limit 0.001 ms)" in done.stderr
    rows = {(row["version"], row["kind"]): row for row in report_of(tmp_path)["rows"]}
    kinds = ("chat", "TTFT", "TPOT")
    assert set(rows) == {(version, kind) for version in ("llm-00001", "total") for kind in kinds}
    assert rows["total", "chat"]["requests"] == pytest.approx(40, abs=10)
    assert rows["total", "chat"]["errors"] == 0
    assert server.requests[0]["stream"] is True


def test_the_end_of_stdin_ends_the_load(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with chat_server() as server:
        done = locust(
            "--headless", "--run-time", "60", "-H", server.url, "--model", "llm", "--kind", "chat", "--end-with-stdin",
            "--report", str(report), stdin="",
        )  # fmt: skip

    assert done.returncode in (0, 1), done.stderr
    assert report_of(tmp_path)["seconds"] < 30.0
