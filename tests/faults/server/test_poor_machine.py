"""A server on a machine that has run out of something: of files, of room on its disk, of who reads its log."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.server.process import call, server_process
from tests.serving.modelserver.client import Caller
from tests.support import models
from tests.support.mounts import MayNotMount
from tests.support.small_disk import fill, make_room, on_small_disk
from tests.support.wait import eventually

FILES = 64
CONNECTIONS = 200
WATCHED = 3.0  # s
F_SETPIPE_SZ = 1031  # fcntl.h of Linux
PIPE = 4096  # bytes, the least that there is
REQUESTS = 500
DISK = 1  # MiB
FAILS_BELOW_ZERO = """
class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1]}]

    def predict(self, x):
        if x[0] < 0:
            raise ValueError("below zero")
        return x
"""


@pytest.mark.fault("M10")
async def test_without_files_it_neither_spins_nor_floods_its_log_and_takes_callers_again(tmp_path: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
    async with server_process(models.write(tmp_path, "double"), tmp_path, within=few) as server:
        kept = await Caller.connect(server.port)
        await kept.send(call(1.0))
        assert (await kept.answer()).status == 200
        callers = [await Caller.connect(server.port) for _ in range(CONNECTIONS)]  # most of them wait in the kernel
        await eventually(lambda: server.files() >= FILES - 1)
        cpu, log = server.cpu(), server.log.stat().st_size
        await asyncio.sleep(WATCHED)
        assert server.cpu() - cpu < WATCHED / 10
        assert server.log.stat().st_size - log < 64 << 10
        await kept.send(call(2.0))
        assert (await kept.answer()).status == 200
        for caller in (kept, *callers):
            caller.reset()

        async def answers() -> bool:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                return (await server.infer(3.0)).status == 200
            return False

        await eventually(answers)


@pytest.mark.fault("M10")
async def test_a_log_that_nobody_reads_keeps_no_caller_waiting(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, PIPE)
    path = tmp_path / "model.py"
    path.write_text(FAILS_BELOW_ZERO)
    options = ("--format", "python", "--allow-code", "--access-log")
    try:
        async with server_process(path, tmp_path, *options, pipe=writing) as server:
            os.set_blocking(writing, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(writing, b"\n"):
                    pass
            os.set_blocking(writing, True)
            caller = await Caller.connect(server.port)
            for number in range(REQUESTS):
                await caller.send(call(-(number % 2)))
                assert (await caller.answer()).status == (500 if number % 2 else 200)  # with a line in the log
            caller.close()
            server.process.terminate()
            assert await asyncio.wait_for(server.process.wait(), 20) == 0
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.fault("M10")
@pytest.mark.skipif(os.getuid() != 0, reason="a read-only root takes root")
async def test_with_a_read_only_root_it_serves(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounts cannot be changed here")
    read_only = (
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount -o remount,bind,ro / && ! touch /ro 2>/dev/null && exec "$@"',
        "sh",
    )
    path = models.write(tmp_path, "double")
    async with server_process(
        path, tmp_path, "--access-log", within=read_only, KNODEL_TERMINATION_LOG="/why"
    ) as server:
        assert (await server.infer(1.0)).status == 200
        server.process.terminate()
        assert await asyncio.wait_for(server.process.wait(), 20) == 0


@pytest.mark.fault("M10")
def test_a_full_disk_costs_the_load_that_needs_it_and_nobody_else(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    try:
        on_small_disk(cache, DISK, lambda: asyncio.run(load_and_serve(tmp_path, cache)))
    except MayNotMount as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")


async def load_and_serve(folder: Path, cache: Path) -> None:
    """Refused with the reason while the disk is full, served once there is room, and then whatever the disk."""
    models.write(folder / "store", "double")
    cache.chmod(0o700)
    with store(folder / "store") as url:
        why, ours = folder / "why", str(cache / "ours")
        fill(cache)
        serving = partial(
            server_process, f"{url}/double.onnx", folder, KNODEL_ALLOW_HOSTS="127.0.0.1", KNODEL_CACHE=ours
        )
        async with serving(wait=False, KNODEL_TERMINATION_LOG=str(why)) as server:
            assert await asyncio.wait_for(server.process.wait(), 20) == 1
            assert "No space left" in why.read_text()
            assert "Traceback" not in server.log.read_text()
        make_room(cache)
        shutil.rmtree(cache / "ours", ignore_errors=True)
        async with serving() as server:
            fill(cache)
            assert (await server.infer(1.0)).status == 200


@contextlib.contextmanager
def store(folder: Path) -> Iterator[str]:
    """A web server of the files in `folder`."""

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()
