"""The server as a process: start, errors at start, shutdown."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from serving.storage.base.digest import of_bytes
from tests.serving.modelserver.client import HOST, ask, request, tensor
from tests.support import models
from tests.support.ports import free_port
from tests.support.wait import eventually

Start = Callable[..., Awaitable[asyncio.subprocess.Process]]
CALL = request("POST", "/v2/models/m/infer", json.dumps({"inputs": [tensor([1.0])]}).encode())


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PORT": str(free_port()),
        "MANAGEMENT_PORT": str(free_port()),
        "KNODEL_TERMINATION_LOG": str(tmp_path / "why"),
    }


@pytest.fixture
async def start(environment: dict[str, str]) -> AsyncIterator[Start]:
    """Start `python -m serving.modelserver` with arguments."""
    started: list[asyncio.subprocess.Process] = []

    async def run(*arguments: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serving.modelserver", *arguments, env=environment, stderr=asyncio.subprocess.PIPE
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ready(environment: dict[str, str]) -> None:
    """Wait until the model is served."""

    async def looks() -> bool:
        try:
            return (await ask(int(environment["PORT"]), request("GET", "/v2/health/ready"))).status == 200
        except (ConnectionError, asyncio.IncompleteReadError):
            return False

    await eventually(looks)


@pytest.mark.fault("M5")
async def test_sigterm_ends_it_with_0_when_all_is_answered(
    start: Start, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = models.write(tmp_path, "slow")
    process = await start("--name", "m", "--storage-uri", path.as_uri())
    await ready(environment)
    calls = [asyncio.create_task(ask(int(environment["PORT"]), CALL)) for _ in range(6)]

    async def busy() -> bool:
        page = await ask(int(environment["MANAGEMENT_PORT"]), request("GET", "/stats"))
        return bool(page.json["active"] + page.json["queued"] == len(calls))

    await eventually(busy)
    process.terminate()
    assert [(await call).status for call in calls] == [200] * 6
    assert await process.wait() == 0
    assert not Path(environment["KNODEL_TERMINATION_LOG"]).exists()


async def test_a_server_on_loopback_refuses_web_pages_of_others(
    start: Start, tmp_path: Path, environment: dict[str, str]
) -> None:
    await start(
        "--name", "m", "--storage-uri", models.write(tmp_path, "double").as_uri(), "--allowed-host", "models.lan"
    )  # fmt: skip
    await ready(environment)
    for port in (int(environment["PORT"]), int(environment["MANAGEMENT_PORT"])):
        for name, value in (("host", "evil.example"), ("origin", "https://evil.example")):
            answer = await ask(port, request("GET", "/v2/health/live", b"", **{name: value}))
            assert answer.status == 403 and "--allowed-host evil.example" in answer.error
        assert (await ask(port, request("GET", "/v2/health/live", host="models.lan"))).status == 200


async def fails(start: Start, environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit code, the termination message and the content of stderr."""
    process = await start(*arguments)
    _, output = await process.communicate()
    why = Path(environment["KNODEL_TERMINATION_LOG"]).read_text()
    assert why.count("\n") == 1 and why.strip() in output.decode()
    return process.returncode or 0, why.strip(), output.decode()


async def test_a_model_that_cannot_be_loaded_ends_it_with_1_and_the_reason(
    start: Start, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = models.write(tmp_path, "truncated")
    code, why, output = await fails(start, environment, "--name", "m", "--storage-uri", path.as_uri())
    assert (code, "truncated.onnx" in why, "protobuf" in why) == (1, True, True)
    assert "Traceback" not in output


@pytest.mark.fault("M1")
async def test_a_wrong_digest_ends_it_and_names_both(start: Start, tmp_path: Path, environment: dict[str, str]) -> None:
    path = models.write(tmp_path, "double")
    wrong, right = "sha256:" + "0" * 64, "sha256:" + hashlib.sha256(models.double()).hexdigest()
    code, why, _ = await fails(start, environment, "--name", "m", "--storage-uri", path.as_uri(), "--digest", wrong)
    assert (code, wrong in why, right in why) == (1, True, True)


async def confirm(environment: dict[str, str], digest: str) -> None:
    """Confirm the digest of the loaded model, as the autoscaler does."""

    async def taken() -> bool:
        body = json.dumps({"digest": digest}).encode()
        try:
            return (await ask(int(environment["MANAGEMENT_PORT"]), request("PUT", "/digest", body))).status == 204
        except (ConnectionError, asyncio.IncompleteReadError):
            return False

    await eventually(taken)


async def test_a_container_that_restarts_before_there_is_a_record_loads_the_same_bytes_or_ends(
    start: Start, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment |= {"KNODEL_DIGESTS": str(tmp_path / "no record"), "TMPDIR": str(tmp_path), "K_REVISION": "m-00001"}
    path = models.write(tmp_path, "double")
    words = ("--name", "m", "--storage-uri", path.as_uri())
    process = await start(*words)
    await confirm(environment, of_bytes(models.double()))
    await ready(environment)
    process.terminate()
    assert await process.wait() == 0

    path.write_bytes(models.triple())
    code, why, _ = await fails(start, environment, *words)
    assert (code, of_bytes(models.double()) in why, of_bytes(models.triple()) in why) == (1, True, True)


async def test_wrong_options_end_it_with_2_and_a_taken_port_with_1(
    start: Start, tmp_path: Path, environment: dict[str, str]
) -> None:
    code, why, _ = await fails(start, environment, "--name", "m")
    assert (code, "--storage-uri" in why) == (2, True)
    with socket.create_server((HOST, int(environment["PORT"]))):
        code, why, _ = await fails(start, environment, "--name", "m", "--storage-uri", "file:///m.onnx")
    assert (code, environment["PORT"] in why) == (1, True)


async def test_a_stop_while_loading_ends_it_with_0(start: Start, tmp_path: Path, environment: dict[str, str]) -> None:
    with socket.create_server((HOST, 0)) as silent:  # a model store that takes connections and never answers
        environment["KNODEL_ALLOW_HOSTS"] = HOST
        environment["KNODEL_CACHE"] = str(tmp_path / "cache")
        uri = f"http://{HOST}:{silent.getsockname()[1]}/m.onnx"
        process = await start("--name", "m", "--storage-uri", uri)

        async def lives() -> bool:
            try:
                return (await ask(int(environment["PORT"]), request("GET", "/v2/health/live"))).status == 200
            except ConnectionError:
                return False

        await eventually(lives)
        assert (await ask(int(environment["PORT"]), request("GET", "/v2/health/ready"))).status == 503
        process.terminate()
        assert await process.wait() == 0


async def prints(script: str, environment: dict[str, str], *arguments: str) -> list[str]:
    """Return the words that a program prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.decode().split()


async def test_a_start_makes_no_dataclass_of_ours_each_of_which_takes_as_long_as_three_modules(
    environment: dict[str, str],
) -> None:
    script = (
        "import sys, serving.modelserver.main, serving.modelserver.run, serving.engines.onnx.engine\n"
        "ours = [name for name in sys.modules if name.partition('.')[0] in ('serving', 'clusters')]\n"
        "made = [(name, key) for name in ours for key, value in vars(sys.modules[name]).items()\n"
        "        if hasattr(value, '__dataclass_fields__')]\n"
        "print(len(ours) > 50, *made)"
    )
    assert await prints(script, environment) == ["True"]


async def test_garbage_is_collected_in_a_server_but_not_in_what_it_imported(
    environment: dict[str, str], tmp_path: Path
) -> None:
    script = (
        "import gc, sys\ngc.disable()\nfrom serving.modelserver import main, run\n"
        "run.run = lambda *_: print(gc.isenabled(), gc.get_freeze_count() > 10_000)\nmain.main(sys.argv[1:])"
    )
    path = models.write(tmp_path, "double")
    assert await prints(script, environment, "--name", "m", "--storage-uri", path.as_uri()) == ["True", "True"]


async def test_what_a_zygote_imports_starts_no_thread_and_asks_nobody(tmp_path: Path) -> None:
    script = (
        "import importlib, os\nfrom serving.modelserver import preload\n"
        f"for name in preload(['--storage-uri', {models.write(tmp_path, 'double').as_uri()!r}]):\n"
        "    importlib.import_module(name)\n"
        "import onnxruntime\nprint(len(os.listdir('/proc/self/task')))"
    )
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={"PATH": os.environ["PATH"], **single}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "1"
