"""The process of llama.cpp's server, as the model server starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from serving.engines.base.errors import EngineError
from serving.engines.base.folder import ModelFolder
from serving.engines.gguf.program import KEY, GgufProgram, LlamaSettings
from serving.engines.upstream import client
from serving.engines.upstream.client import Address
from serving.storage.base.artifact import Artifact
from tests.support import small_gguf
from tests.support.wait import eventually

SECRET = "a-secret-key"


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    address: Address

    def healthy(self) -> bool:
        try:
            return client.request(self.address, "GET", "/health").status == client.OK
        except EngineError:
            return False

    def children(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()


def program(folder: Path) -> GgufProgram:
    settings = LlamaSettings(
        model=str(folder / "m.gguf"), socket="", name="m", slots=1, context=256, batch=256, threads=1,
        prompt_cache_mib=0, embeddings=False, mean=False, most_text=0, adapters=(), options={},
    )  # fmt: skip
    return GgufProgram(settings, (), ModelFolder(Artifact(folder, None), in_place=True))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    small_gguf.write(str(tmp_path / "m.gguf"))
    address = Address(tmp_path / "s.sock", SECRET)
    argv, environ = program(tmp_path).command(address.socket, address.key)
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, **environ}, start_new_session=True)
    with process:
        yield Started(process, address)
        process.kill()


async def test_it_ends_with_its_standard_input(started: Started) -> None:
    await eventually(started.healthy)
    assert started.children() == []  # nothing would be left
    assert started.process.stdin is not None
    started.process.stdin.close()
    assert started.process.wait(5) != 0
    assert not started.healthy()


async def test_it_outlives_sigterm_which_the_model_server_drains_on(started: Started) -> None:
    await eventually(started.healthy)
    started.process.send_signal(signal.SIGTERM)
    assert started.healthy()
    assert started.process.poll() is None


async def test_all_pages_but_the_health_need_the_key(started: Started) -> None:
    await eventually(started.healthy)
    for path in ("/props", "/slots", "/metrics", "/v1/chat/completions", "/lora-adapters"):
        assert client.request(Address(started.address.socket, "wrong"), "GET", path).status == 401, path


HOLDER = """
import subprocess, sys, time
process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, start_new_session=True)
print(process.pid, flush=True)
time.sleep(600)
"""


async def test_it_ends_when_the_model_server_is_killed(tmp_path: Path) -> None:
    small_gguf.write(str(tmp_path / "m.gguf"))
    address = Address(tmp_path / "s.sock", SECRET)
    argv, environ = program(tmp_path).command(address.socket, address.key)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *argv], stdout=subprocess.PIPE, env={**os.environ, **environ}
    ) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        await eventually(Started(holder, address).healthy)
        holder.kill()
        await eventually(lambda: not running(pid))


def running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_without_a_key_nothing_is_served(tmp_path: Path) -> None:
    argv, _ = program(tmp_path).command(tmp_path / "s.sock", SECRET)
    environ = {name: value for name, value in os.environ.items() if name != KEY}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, env=environ) as process:
        assert process.wait(30) == 1  # its standard input is open
    assert not (tmp_path / "s.sock").exists()
