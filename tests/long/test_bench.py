"""The shapes of load against models on a platform: by locust as people run it, and by `knodel bench`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadtests.simulate.trace import SHIPPED, TRACES
from serving.loadtest.arguments import SHAPES
from tests.platform.machine import KNODEL, Machine, machine
from tests.support import small_gguf
from tests.support.chat_server import chat_server
from tests.testbed.waiting import becomes

ROOT = Path(__file__).parents[2]
SECONDS = 9
WITHIN = 30.0  # s
TRACE = ("--trace", str(TRACES / SHIPPED["code"]))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Run a platform with a language model, and another model whose second version has a fifth of the traffic."""
    folder = tmp_path_factory.mktemp("platform")
    small_gguf.write(str(folder / "tiny.gguf"))
    with machine(folder) as made:
        made.up()
        made.run("deploy", "tiny", "--uri", str(folder / "tiny.gguf"), "--wait")
        made.run("deploy", "double", "--uri", made.artifact("double"), "--wait")
        made.run("deploy", "double", "--uri", made.artifact("triple"), "--canary", "20", "--wait")
        yield made


def locust(url: str, report: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run the locust file of the checkout to its end and return its report."""
    command = [
        sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", "-H", url, "--headless", "--only-summary",
        "--report", str(report), *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("model", "rate"), [("double", 30), ("tiny", 4)])
def test_a_shape_reaches_its_rate(platform: Machine, tmp_path: Path, shape: str, model: str, rate: int) -> None:
    options = (
        "--model", model, "--shape", shape, "--rate", str(rate), "--run-time", f"{SECONDS}s", "--max-p95", "20s",
        *(TRACE if shape == "trace" else ()),
    )  # fmt: skip

    found = locust(f"http://127.0.0.1:{platform.port}", tmp_path / "report.json", *options)

    total = {row["kind"]: row for row in found["rows"] if row["version"] == "total"}
    assert set(total) == ({"infer"} if model == "double" else {"chat", "TTFT", "TPOT"})
    due = found["due"] * SECONDS
    assert total["infer" if model == "double" else "chat"]["requests"] == pytest.approx(due, rel=0.2, abs=4)
    assert found["errors"] == {}


def test_bench_shows_versions_and_fails_by_its_limits(platform: Machine) -> None:
    options = ("double", "--rate", "50", "--duration", "5s")
    found = json.loads(platform.run("bench", *options, "--max-p95", "10s", "-o", "json"))
    requests = {row["version"]: row["requests"] for row in found["rows"]}
    assert set(requests) == {"double-00001", "double-00002", "total"}
    assert requests["double-00002"] == pytest.approx(0.2 * requests["total"], rel=0.5)
    assert found["reached"] == pytest.approx(50.0, rel=0.1)

    assert "(limit 0.01 ms)" in platform.run("bench", *options, "--max-p95", "10us", code=1)


def test_a_body_that_the_model_refuses_fails_unless_errors_are_allowed(platform: Machine, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"inputs": []}')
    options = ("bench", "double", "--rate", "20", "--duration", "2s", "--body", str(body))

    assert "requests failed, 100 % (limit 0 %)" in platform.run(*options, code=1)
    assert "400: missing input 'x'" in platform.run(*options, "--max-errors", "100")


@pytest.mark.parametrize(("message", "error"), [
    ("break", "broke off"), ("fail", "broke off: the device is lost"), ("ill", "500: out of memory"),
])  # fmt: skip
def test_answers_that_fail_or_break_off_are_errors(tmp_path: Path, message: str, error: str) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"messages": [{"role": "user", "content": message}]}))
    options = ("--model", "llm", "--kind", "chat", "--rate", "5", "--run-time", "2", "--body", str(body))

    with chat_server() as server:
        found = locust(server.url, tmp_path / "report.json", *options, "--max-errors", "99", code=1)

    [(text, count)] = found["errors"].items()
    assert error in text
    assert count == found["rows"][0]["errors"] > 0


def test_workers_share_the_load(platform: Machine, tmp_path: Path) -> None:
    options = ("--model", "double", "--rate", "50", "--run-time", "8", "--processes", "2")
    found = locust(f"http://127.0.0.1:{platform.port}", tmp_path / "report.json", *options)

    assert 100 < found["rows"][-1]["requests"] < 450  # workers start late, and their last reports may be lost
    assert found["errors"] == {}


@contextmanager
def benching(platform: Machine) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a load of ten minutes. Yield its process, which takes Ctrl-C, and the process id of locust."""
    command = [*KNODEL, "bench", "double", "--rate", "20", "--duration", "10m"]
    with subprocess.Popen(
        command, env=platform.environment, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    ) as process:  # fmt: skip
        try:
            assert becomes(lambda: bool(children_of(process.pid)), WITHIN)
            yield process, children_of(process.pid)[0]
        finally:
            process.kill()


def test_ctrl_c_ends_the_load_and_prints_what_was_measured(platform: Machine) -> None:
    with benching(platform) as (process, _):
        time.sleep(8.0)  # the start of locust, and some load
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WITHIN)

    assert process.returncode == 130
    assert "double-00001" in out
    assert "the load was 20.0" in out


def test_the_load_ends_with_a_command_that_is_killed(platform: Machine) -> None:
    with benching(platform) as (process, child):
        process.kill()

        assert becomes(lambda: not Path("/proc", str(child)).exists(), WITHIN)


def children_of(pid: int) -> list[int]:
    """Return the processes that this one has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
