"""A pool member as a process: restart and shutdown."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from serving.modelserver.base.options import LOAD_TOKEN
from serving.modelserver.pool.assignment_file import FILE_NAME
from serving.storage.base.digest import of_bytes
from tests.serving.modelserver.client import HOST, Answer, ask, request
from tests.serving.modelserver.pool import REVISION, TOKEN_SHA256, Store, infer_of, load, store_of
from tests.support import models
from tests.support.ports import free_ports
from tests.support.wait import eventually


class Process:
    """A pool member as a process that can be restarted with the same folder."""

    def __init__(self, folder: Path) -> None:
        self.port, self.management_port = free_ports(2)
        self.why = folder / "why"
        self.assignment = folder / FILE_NAME
        self.log = folder / "log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "PORT": str(self.port),
            "MANAGEMENT_PORT": str(self.management_port),
            "KNODEL_TERMINATION_LOG": str(self.why),
            "KNODEL_ALLOW_HOSTS": HOST,
            "TMPDIR": str(folder),
            LOAD_TOKEN: TOKEN_SHA256,
            "K_REVISION": "knodel-pool-small-00001",
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *options: str, **environ: str) -> None:
        """Start or restart the process, and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "serving.modelserver",
                "--pool",
                *options,
                env=self.environment | environ,
                stderr=log,
            )
        await eventually(self._lives)

    async def ask(self, raw: bytes) -> Answer:
        """Send a request to the data port."""
        return await ask(self.port, raw)

    def calls(self, number: int) -> list[asyncio.Task[Answer]]:
        """Start `number` inference requests."""
        return [asyncio.create_task(self.ask(infer_of("m", float(one)))) for one in range(number)]

    async def ready(self) -> bool:
        """Return whether the readiness probe succeeds."""
        return (await self.ask(request("GET", "/v2/health/ready"))).status == 200

    async def held(self, number: int) -> bool:
        """Return whether `number` requests wait."""
        page = await ask(self.management_port, request("GET", "/stats"))
        return bool(page.json["queued"] == number)

    async def load(self, uri: str, revision: str = REVISION, **parameters: str) -> Answer:
        """Send the load call."""
        return await load(self.management_port, uri, revision=revision, **parameters)

    async def ended(self) -> int:
        """Wait for the end and return the exit code."""
        assert self._process is not None
        async with asyncio.timeout(10):
            return await self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal if the process is running."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _lives(self) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            return True
        try:
            return (await self.ask(request("GET", "/v2/health/live"))).status == 200
        except (ConnectionError, asyncio.IncompleteReadError):
            return False


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Process]:
    """Return a member that is not started."""
    made = Process(tmp_path)
    yield made
    made.signal(signal.SIGKILL)
    if made._process is not None:
        await made.ended()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """Return a store of `double` that does not deliver yet."""
    async with store_of(models.double()) as made:
        yield made


async def test_nothing_is_imported_between_the_claim_and_the_answer(member: Process, store: Store) -> None:
    store.open.set()
    await member.start(PYTHONPROFILEIMPORTTIME="1")
    await eventually(member.ready)
    before = len(member.log.read_text().splitlines())
    calls = member.calls(1)
    assert (await member.load(store.uri)).status == 200
    assert (await calls[0]).status == 200
    assert (await member.ask(request("GET", "/v2"))).status == 200
    lines = member.log.read_text().splitlines()[before:]
    assert [line for line in lines if line.startswith("import time:")] == []
    assert any("serving model=m" in line for line in lines)


@pytest.mark.fault("W1", "W4")
async def test_killed_after_the_claim_it_loads_what_it_was_told_before_it_is_ready(
    member: Process, store: Store
) -> None:
    await member.start()
    assert await member.ready()
    calls = member.calls(3)
    assert (await member.load(store.uri)).status == 200
    await eventually(lambda: member.held(3))
    member.signal(signal.SIGKILL)
    assert await member.ended() == -signal.SIGKILL
    lost = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, ConnectionError | asyncio.IncompleteReadError) for answer in lost)

    await member.start()
    for path in ("/v2/health/ready", "/v2/models/m", "/v2/models/m/ready"):
        assert (await member.ask(request("GET", path))).status == 503
    assert (await member.ask(infer_of("m", 1.0))).status == 503
    assert (await member.ask(infer_of("other", 1.0))).status == 404
    assert (await member.load(store.uri, revision="m-00008")).status == 409
    assert (await member.load(store.uri)).status == 200

    store.open.set()
    await eventually(member.ready)
    answer = await member.ask(infer_of("m", 2.0))
    assert (answer.json["outputs"][0]["data"], answer.headers["knodel-revision"]) == ([4.0], REVISION)
    startup = (await ask(member.management_port, request("GET", "/stats"))).json["startup"]
    assert (startup["claimed"], startup["imports"] > 0, startup["readyFor"] >= 0) == (False, True, True)
    assert (await member.load(store.uri, revision="m-00008")).status == 409


async def test_a_load_that_fails_ends_it_each_time_with_the_reason(member: Process, tmp_path: Path) -> None:
    await member.start()
    calls = member.calls(3)
    await eventually(lambda: member.held(3))
    await member.load(models.write(tmp_path, "truncated").as_uri())
    for answer in await asyncio.gather(*calls):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    for _ in range(2):
        assert await member.ended() == 1
        assert "truncated.onnx" in member.why.read_text()
        member.why.unlink()
        await member.start()
    assert "Traceback" not in member.log.read_text()


async def test_a_member_is_held_to_the_digest_of_its_claim_in_each_life(member: Process, store: Store) -> None:
    recorded = of_bytes(models.triple())
    store.open.set()
    await member.start()
    assert (await member.load(store.uri, digest=recorded)).status == 200
    for _ in range(2):
        assert await member.ended() == 1
        assert recorded in member.why.read_text() and of_bytes(store.content) in member.why.read_text()
        member.why.unlink()
        await member.start()


@pytest.mark.parametrize(
    "content", [b"", b"garbage \xff", b"[]", b"{}", b'{"name": "m", "parameters": {}}', b"x" * 100_000,
                b'{"name": "m", "parameters": {"storageUri": "file:///m.onnx", "revision": "../m"}}']
)  # fmt: skip
async def test_what_it_has_not_written_is_no_assignment(member: Process, content: bytes) -> None:
    member.assignment.write_bytes(content)
    await member.start()
    assert await member.ended() == 1
    assert str(member.assignment) in member.why.read_text() and member.why.read_text().count("\n") == 1
    assert "Traceback" not in member.log.read_text()


async def test_an_unfinished_assignment_is_none(member: Process) -> None:
    member.assignment.with_name(FILE_NAME + ".new").write_text("{")
    await member.start()
    assert await member.ready()


async def test_a_stop_ends_a_free_member(member: Process) -> None:
    await member.start()
    await eventually(member.ready)
    member.signal(signal.SIGTERM)
    assert await member.ended() == 0
    assert not member.why.exists()


async def test_a_stop_while_it_loads_answers_who_waits(member: Process, store: Store) -> None:
    await member.start()
    calls = member.calls(5)
    await eventually(lambda: member.held(5))
    await member.load(store.uri)
    member.signal(signal.SIGTERM)
    assert [(answer.status, answer.headers["retry-after"]) for answer in await asyncio.gather(*calls)] == [
        (503, "1")
    ] * 5
    assert await member.ended() == 0


async def test_a_stop_while_the_files_become_a_model_answers_who_waits_by_it(member: Process) -> None:
    slow = models.code().replace(b"class Model:", b"import time\n\nclass Model:\n    def load(self): time.sleep(0.7)\n")
    async with store_of(slow) as store:
        store.open.set()
        await member.start("--format", "python", "--allow-code")
        calls = member.calls(3)
        await eventually(lambda: member.held(3))
        await load(member.management_port, store.uri.replace("model.onnx", "model.py"), modelFormat="python")

        async def fetched() -> bool:
            page = await ask(member.management_port, request("GET", "/stats"))
            return bool(page.json["startup"]["fetch"])

        await eventually(fetched)
        member.signal(signal.SIGTERM)
        answers = await asyncio.gather(*calls)
        assert [answer.json["outputs"][0]["data"] for answer in answers] == [[0.0], [4.0], [8.0]]
        assert await member.ended() == 0


async def test_a_stop_after_the_load_answers_what_is_under_way(member: Process, tmp_path: Path) -> None:
    await member.start()
    await member.load(models.write(tmp_path, "slow").as_uri())
    calls = member.calls(6)

    async def busy() -> bool:
        page = (await ask(member.management_port, request("GET", "/stats"))).json
        return bool(page["requests"] == len(calls))

    await eventually(busy)
    member.signal(signal.SIGTERM)
    assert [(await call).status for call in calls] == [200] * 6
    assert await member.ended() == 0


async def test_a_taken_port_or_an_unknown_format_ends_it(member: Process) -> None:
    with socket.create_server((HOST, member.port)):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "serving.modelserver",
            "--pool",
            env=member.environment,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 1
    assert str(member.port) in member.why.read_text()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "serving.modelserver", "--pool", "--format", "tarot", env=member.environment,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 1
    assert "tarot" in member.why.read_text()


async def test_what_a_zygote_imports_for_it_starts_no_thread() -> None:
    script = (
        "import importlib, json, os, sys\nfrom serving.modelserver import preload\n"
        "for name in preload(['--pool', '--format', 'onnx']):\n    importlib.import_module(name)\n"
        "print(json.dumps([len(os.listdir('/proc/self/task')), 'onnxruntime' in sys.modules]))"
    )
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={"PATH": os.environ["PATH"], **single}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert json.loads(output) == [1, True]
