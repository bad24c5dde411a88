"""The process outlives its control plane, is adopted, restarted and drained, and is idle without requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import Unavailable
from clusters.base.identity import identify, is_running
from clusters.base.objects import Key
from clusters.embedded.activator.link import ActivatorLink
from clusters.embedded.activator.process import SOCKET, ActivatorFailed, ActivatorProcess
from clusters.embedded.activator.wire import ActivatorTarget, RevisionLoad
from tests.clusters.activator.backend import Backend, Gate
from tests.clusters.activator.caller import REVISION, Caller
from tests.clusters.activator.conftest import Running, running
from tests.support.loops import at_work
from tests.support.wait import eventually

MIB = 1024 * 1024

CONTROL_PLANE = """
import asyncio, sys
from pathlib import Path
from clusters.base.clock import SystemClock
from clusters.embedded.activator.process import ActivatorProcess
from clusters.embedded.activator.wire import ActivatorTarget
from clusters.net.endpoints import Endpoint
from clusters.base.objects import Key

async def main():
    process = ActivatorProcess(Path(sys.argv[1]), SystemClock())
    await process.start()
    task = asyncio.create_task(process.run())
    await process.link.wait_connected()
    endpoint = Endpoint("default/pod", "127.0.0.1", int(sys.argv[2]), 1)
    await process.link.set_target(ActivatorTarget(Key("default", "iris-00001"), (endpoint,), 10, 0, 20.0))
    await process.link.set_target(ActivatorTarget(Key("default", "zero-00001"), (), 10, 0, 20.0))
    print(process.address[1], process.identity.pid, flush=True)
    await task

asyncio.run(main())
"""


async def killed_control_plane(folder: Path, port: int) -> tuple[int, int]:
    """Start an activator from a control plane that is then killed. Return its port and pid."""
    plane = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROL_PLANE, str(folder), str(port), stdout=asyncio.subprocess.PIPE
    )
    assert plane.stdout is not None
    told = (await plane.stdout.readline()).split()
    plane.kill()
    await plane.wait()
    return int(told[0]), int(told[1])


async def test_it_serves_on_after_its_control_plane_was_killed_and_is_adopted(tmp_path: Path) -> None:
    folder = tmp_path / "activator"
    async with Backend() as backend:
        port, pid = await killed_control_plane(folder, backend.port)
        async with (
            await Caller.connect(("127.0.0.1", port)) as caller,
            await Caller.connect(("127.0.0.1", port)) as held,
        ):
            assert (await caller.post(b"alone")).body == b"alone"
            held.send(b"held", key=Key("default", "zero-00001"))
            async with running(folder) as again:
                assert again.pid == pid
                assert again.process.address == ("127.0.0.1", port)
                zero = Key("default", "zero-00001")
                await eventually(lambda: again.link.load(zero).queued == 1)
                assert zero in {key for key, _ in again.wakes} or again.link.load(zero) == RevisionLoad(1, 0)
                await again.serve(backend.endpoint, key=zero)
                assert (await held.answer()).body == b"held"
                assert (await caller.post(b"again")).body == b"again"
                await again.link.retain([zero])
                assert (await caller.post(b"gone")).status == 503
        assert not _runs(pid)


@pytest.mark.fault("I3")
async def test_a_killed_activator_is_restarted_at_its_address_and_told_everything(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve(backend.endpoint)
        former, address = activator.pid, activator.process.address
        os.kill(former, signal.SIGKILL)
        await eventually(lambda: activator.pid != former and activator.link.connected)
        assert activator.process.address == address
        async with await activator.caller() as caller:
            assert (await caller.post(b"x")).body == b"x"


async def test_a_connection_that_was_just_accepted_is_served_in_a_drain(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve(backend.endpoint)
        caller = await activator.caller()
        async with await activator.caller() as earlier:
            await earlier.post(b"accepted after the connection above")
            os.kill(activator.pid, signal.SIGTERM)
            await eventually(lambda: earlier.reader.at_eof())  # the drain has begun
        assert (await caller.post(b"x")).body == b"x"
        assert (await caller.reader.read()) == b"", "one request, and no more"


@pytest.mark.fault("I10")
async def test_a_silent_leftover_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.embedded.activator.process.ADOPT_TIMEOUT", 0.3)
    folder = tmp_path / "activator"
    _, pid = await killed_control_plane(folder, 1)
    os.kill(pid, signal.SIGSTOP)
    async with running(folder) as again:
        assert again.pid != pid
        assert not _runs(pid)


@pytest.mark.fault("I10")
async def test_an_unrecorded_leftover_is_found_by_its_socket(tmp_path: Path) -> None:
    """The control plane crashed between starting the process and recording it."""
    folder = tmp_path / "activator"
    _, pid = await killed_control_plane(folder, 1)
    (folder / "activator.pid.json").unlink()
    async with running(folder) as again:
        assert again.pid == pid


@pytest.mark.fault("I3")
async def test_stop_finishes_what_is_in_flight_and_leaves_nothing(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path) as activator, Backend(gate) as backend:
        await activator.serve(backend.endpoint)
        caller = await activator.caller()
        caller.send(b"slow")
        await eventually(lambda: backend.busy == 1)
        stopping = asyncio.create_task(activator.process.stop(10.0))
        await eventually(lambda: _refuses(activator.process.address))
        gate.open.set()
        assert (await caller.answer()).body == b"slow"
        await stopping
        assert not (tmp_path / SOCKET).exists()
        assert activator.process.identity is None


def _runs(pid: int) -> bool:
    identity = identify(pid)
    return identity is not None and is_running(identity)


async def _refuses(address: tuple[str, int]) -> bool:
    try:
        async with await Caller.connect(address):
            return False
    except OSError:
        return True


async def test_stop_ends_what_does_not_finish_in_time(tmp_path: Path) -> None:
    async with running(tmp_path) as activator, Backend(Gate()) as backend:
        await activator.serve(backend.endpoint)
        caller = await activator.caller()
        caller.send(b"endless")
        await eventually(lambda: backend.busy == 1)
        await activator.process.stop(0.2)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.answer()


@pytest.mark.fault("I10")
async def test_an_address_in_use_is_a_clear_error(tmp_path: Path) -> None:
    async with Backend() as taken:
        process = ActivatorProcess(tmp_path, SystemClock())
        process.address = ("127.0.0.1", taken.port)
        with pytest.raises(ActivatorFailed, match=str(taken.port)):
            await process.start()
        assert process.identity is None


async def test_a_copied_folder_gets_an_address_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path / "original") as original:
        subprocess.run(["cp", "-a", tmp_path / "original", tmp_path / "copy"], check=True)
        async with running(tmp_path / "copy") as copy:
            assert copy.process.address != original.process.address
            assert copy.pid != original.pid
        assert _runs(original.pid)


async def test_an_address_that_another_process_took_meanwhile_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as before:
        address = before.process.address
    with socket.create_server(address):
        async with running(tmp_path) as again:
            assert again.process.address != address


async def test_an_activator_of_another_version_is_replaced_and_no_request_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "activator"
    async with Backend() as backend:
        port, pid = await killed_control_plane(folder, backend.port)
        record = folder / "activator.pid.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"version": "older"}))
        async with await Caller.connect(("127.0.0.1", port)) as held:
            zero = Key("default", "zero-00001")
            held.send(b"held", key=zero)
            async with running(folder) as again:
                await again.link.set_target(ActivatorTarget(REVISION, (backend.endpoint,), 10, 0, 20.0))
                await eventually(lambda: again.link.load(zero).queued == 1)
                assert again.pid == pid  # it goes on while it has requests
                await again.serve(backend.endpoint, key=zero)
                assert (await held.answer()).body == b"held"
                while again.pid == pid:
                    assert (await asked(port)) == b"x"
                await again.link.wait_connected()
                assert (await asked(port)) == b"x"
                assert not _runs(pid)
                version = json.loads(record.read_text())["version"]
                assert version not in ("", "older")


async def asked(port: int) -> bytes:
    """Return the response on a new connection. A refused connection is retried at once, as Envoy does."""
    for _ in range(3):
        with contextlib.suppress(ConnectionRefusedError):
            async with await Caller.connect(("127.0.0.1", port)) as caller:
                return (await caller.post(b"x")).body
        await asyncio.sleep(0.01)
    raise AssertionError("nobody listens")


async def test_requests_wait_for_the_successor_of_a_killed_activator(activator: Running) -> None:
    async with Backend() as backend:
        await activator.serve(backend.endpoint)
        former = activator.pid
        os.kill(former, signal.SIGKILL)
        await eventually(lambda: not _runs(former))
        async with await activator.caller() as caller:  # at once: nobody accepts yet
            assert (await caller.post(b"x")).body == b"x"


async def test_it_rests_and_is_small(activator: Running) -> None:
    await activator.serve()
    before = activator.cpu()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await asyncio.Event().wait()
    assert activator.cpu() - before <= 0.02
    assert activator.memory() < 45 * MIB


async def test_targets_given_while_it_is_away_are_unavailable_but_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusters.embedded.activator.link.ACK_TIMEOUT", 0.05)
    link = ActivatorLink(tmp_path / SOCKET, SystemClock())
    target = ActivatorTarget(REVISION, (), 10, 0, 20.0)
    with pytest.raises(Unavailable, match="iris-00001"):
        await link.set_target(target)
    with pytest.raises(Unavailable):
        await link.retain([])
    monkeypatch.undo()
    async with running(tmp_path) as activator, at_work(link.run()):
        await link.wait_connected()
        await link.set_target(target)
        async with await activator.caller() as caller:
            caller.send(b"x")
            await eventually(lambda: link.load(REVISION) == RevisionLoad(1, 0))
