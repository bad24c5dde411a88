"""Zygotes: forked processes, their exit statuses, and restarts of zygotes and kubelets."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clusters.base.clock import SystemClock
from clusters.base.identity import Identity, is_running
from clusters.embedded.kubelet import end_leftovers, find_leftovers
from clusters.embedded.kubelet.process import zygote
from clusters.embedded.kubelet.process.errors import RunContainerError, ZygoteFailed
from clusters.embedded.kubelet.process.folders import ContainerRecord, Folders
from clusters.embedded.kubelet.process.images import ContainerCommand
from clusters.embedded.kubelet.process.pod_runtime import PodRuntime
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, ExitStatus
from clusters.embedded.kubelet.process.runtime import ContainerConfig, StartedContainer
from clusters.embedded.kubelet.process.zygotes import SOCKET_NAME, ZygoteRuntime, zygote_key
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

APP = "tests.clusters.zygote_app"
MODULES = (APP,)


class World:
    """A state folder with zygotes."""

    def __init__(self, state: Path) -> None:
        self.folders = Folders(state)
        self.folders.prepare()
        self.zygotes = ZygoteRuntime(self.folders, SystemClock())
        self.started: list[StartedContainer] = []

    def launch(self, function: str, *args: str, uid: str = "u", **changes: Any) -> ContainerConfig:
        """Return the configuration that starts a function of the test's module."""
        self.folders.scratch(uid).mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            "command": ContainerCommand((sys.executable, "-c", "print('by exec')"), f"{APP}:{function}", args, MODULES),
            "env": {"COLOUR": "blue"},
            "cwd": self.folders.scratch(uid),
            "log": self.log(uid),
            "limits": {},
            "ports": {"8080": 20000},
            "record_file": self.folders.record_file(uid),
            "home": self.folders.home,
        }
        return ContainerConfig(**settings | changes)

    def log(self, uid: str = "u") -> Path:
        """Return the log file of the process."""
        return self.folders.pods / uid / "log"

    async def start(self, function: str, *args: str, **changes: Any) -> StartedContainer:
        """Fork a process."""
        started = await self.zygotes.start(self.launch(function, *args, **changes))
        self.started.append(started)
        return started

    def successor(self) -> ZygoteRuntime:
        """Return the runtime of a new kubelet."""
        self.zygotes = ZygoteRuntime(self.folders, SystemClock())
        return self.zygotes

    def zygote(self) -> Identity:
        """Return the running zygote."""
        record = ContainerRecord.parse(
            (self.folders.zygotes / zygote_key(MODULES, {}) / zygote.RECORD_NAME).read_text()
        )
        assert record is not None
        return record.identity

    def socket(self) -> Path:
        """Return the socket of the zygote."""
        return self.folders.zygotes / zygote_key(MODULES, {}) / SOCKET_NAME

    async def waiting(self, uid: str = "u") -> None:
        """Wait until the forked function `wait` waits."""
        await eventually(lambda: "waiting" in self.log(uid).read_text())


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A state folder whose path is too long for a unix socket's address."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    fresh = World(tmp_path / ("deep" * 30))
    try:
        yield fresh
    finally:
        for started in fresh.started:
            started.process.detach()
        await fresh.zygotes.shut_down()
        await asyncio.to_thread(end_leftovers, find_leftovers(fresh.folders.state_dir), 0.0)


async def test_a_fork_is_an_independent_process(world: World) -> None:
    limits = {resource.RLIMIT_DATA: (1 << 33, 1 << 33)}
    started = await world.start("report", "5", "--name=a", limits=limits)

    assert await started.process.wait() == ExitStatus(code=5)

    facts = json.loads(world.log().read_text())
    assert facts["argv"] == ["5", "--name=a"] and facts["sysArgv"] == [f"{APP}:report", "5", "--name=a"]
    assert facts["forked"] and facts["session"] and facts["sigchld"]
    assert facts["environment"] == {"COLOUR": "blue"}
    assert facts["folder"] == str(world.folders.scratch("u"))
    assert facts["files"][:3] == [0, 1, 2] and len(facts["files"]) == 4  # the fourth reads /proc/self/fd
    assert facts["limit"] == 1 << 33


async def test_a_fork_inherits_the_listening_sockets_and_its_zygote_keeps_none(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("127.0.0.1", 0)) as second:
        address = listener.getsockname()
        started = await world.start("serve", *map(str, address), listeners=(second, listener))

    _, writer = await asyncio.open_connection(*address)
    writer.close()

    assert await started.process.wait() == ExitStatus(code=9)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_siblings_draw_different_random_numbers(world: World) -> None:
    for uid in ("a", "b"):
        await (await world.start("report", "0", uid=uid)).process.wait()

    first, second = (json.loads(world.log(uid).read_text()) for uid in ("a", "b"))

    assert first["random"] != second["random"]


async def test_many_forks_at_once_wait_for_the_same_imports(world: World) -> None:
    launches = [world.start("report", str(code), uid=str(code)) for code in range(20)]

    started = await asyncio.gather(*launches)

    assert [await fork.process.wait() for fork in started] == [ExitStatus(code=code) for code in range(20)]
    assert len([leftover for leftover in find_leftovers(world.folders.state_dir) if leftover.role == "zygote"]) == 1


async def test_the_exit_status_of_a_killed_fork_has_the_signal(world: World) -> None:
    started = await world.start("wait")
    await world.waiting()

    started.process.kill()

    assert await started.process.wait() == ExitStatus(signal=signal.SIGKILL)


async def test_an_exception_of_the_entry_has_exit_code_1_and_a_traceback_in_the_log(world: World) -> None:
    started = await world.start("broken")

    assert await started.process.wait() == ExitStatus(code=1)
    assert "RuntimeError: no such tensor" in world.log().read_text()


async def test_the_record_is_written_before_the_start_is_reported(world: World) -> None:
    started = await world.start("wait")

    assert world.folders.read_record("u") == started.record
    assert started.record == ContainerRecord(
        started.process.identity, zygote_key(MODULES, {}), {"8080": 20000}, world.folders.home
    )


async def test_an_error_of_the_set_up_is_reported(world: World) -> None:
    with pytest.raises(RunContainerError, match=r"FileNotFoundError.*nowhere"):
        await world.start("report", "0", cwd=Path("/nowhere"))


async def test_a_new_client_uses_the_same_zygote_and_reads_old_exit_statuses(world: World) -> None:
    started = await world.start("wait")
    await world.waiting()
    before = world.zygote()
    started.process.detach()
    successor = world.successor()
    process = successor.adopt(started.record)
    assert process is not None

    process.signal(signal.SIGTERM)

    assert await process.wait() == ExitStatus(code=7)
    assert await successor.read_exit_status(started.record) == ExitStatus(code=7)
    await (await world.start("report", "0", uid="next")).process.wait()
    assert world.zygote() == before


async def test_forks_outlive_their_zygote_with_an_unknown_exit_status(world: World) -> None:
    started = await world.start("wait")
    await world.waiting()

    os.kill(world.zygote().pid, signal.SIGKILL)
    await eventually(lambda: not is_running(world.zygote()))

    assert is_running(started.process.identity)
    started.process.signal(signal.SIGTERM)
    assert await started.process.wait() == UNKNOWN_EXIT


async def test_a_zygote_that_was_killed_is_replaced_with_the_next_fork(world: World) -> None:
    for uid, code in (("a", 3), ("b", 4), ("c", 5)):
        assert await (await world.start("report", str(code), uid=uid)).process.wait() == ExitStatus(code=code)
        os.kill(world.zygote().pid, signal.SIGKILL)
        await eventually(lambda: not is_running(world.zygote()))


async def test_an_adopted_zygote_that_was_killed_is_replaced_too(world: World) -> None:
    await (await world.start("report", "0", uid="a")).process.wait()
    world.successor()
    await (await world.start("report", "0", uid="b")).process.wait()
    os.kill(world.zygote().pid, signal.SIGKILL)
    await eventually(lambda: not is_running(world.zygote()))

    assert await (await world.start("report", "4", uid="c")).process.wait() == ExitStatus(code=4)


async def test_after_a_zygote_failed_pods_start_by_exec_and_later_from_a_new_zygote(world: World) -> None:
    clock = SteppedClock()
    zygotes = ZygoteRuntime(world.folders, clock)
    runtime = PodRuntime(zygotes)
    await (await runtime.start(world.launch("report", "0", uid="a"))).process.wait()
    world.socket().unlink()  # it runs but is not reachable

    for uid in ("b", "c"):
        started = await runtime.start(world.launch("report", "0", uid=uid))
        assert await started.process.wait() == ExitStatus(code=0)
        assert world.log(uid).read_text() == "by exec\n" and not started.record.zygote

    clock.step(31.0)
    started = await runtime.start(world.launch("report", "4", uid="d"))
    assert await started.process.wait() == ExitStatus(code=4)


@pytest.mark.parametrize("source", ["raise RuntimeError('broken install')", "import threading\n"])
async def test_modules_that_cannot_be_preloaded_are_started_by_exec(world: World, tmp_path: Path, source: str) -> None:
    source += "threading.Thread(target=threading.Event().wait, daemon=True).start()\n" if "threading" in source else ""
    (tmp_path / "bad_engine.py").write_text(source)
    launch = world.launch("report", "0", env={"PYTHONPATH": str(tmp_path)})
    command = ContainerCommand(launch.command.argv, launch.command.entry, (), ("bad_engine",))
    os.environ["PYTHONPATH"] += f":{tmp_path}"

    with pytest.raises(ZygoteFailed):
        await world.zygotes.start(world.launch("report", command=command))
    started = await PodRuntime(world.zygotes).start(world.launch("report", command=command))

    assert await started.process.wait() == ExitStatus(code=0)
    assert world.log().read_text() == "by exec\n"


async def test_a_zygote_with_outdated_code_is_replaced(world: World, tmp_path: Path) -> None:
    module = tmp_path / "engine_of_today.py"
    module.write_text("def main(argv): return 1\n")
    os.environ["PYTHONPATH"] += f":{tmp_path}"
    command = ContainerCommand((), "engine_of_today:main", (), ("engine_of_today",))
    assert await (await world.start("", command=command)).process.wait() == ExitStatus(code=1)

    module.write_text("def main(argv): return 22\n")
    os.utime(module, (module.stat().st_mtime + 10,) * 2)
    world.successor()

    assert await (await world.start("", command=command)).process.wait() == ExitStatus(code=22)


async def test_shutting_down_stops_the_zygote_and_not_its_forks(world: World) -> None:
    started = await world.start("wait")
    await world.waiting()

    await world.zygotes.shut_down()

    assert not is_running(world.zygote())
    assert not world.socket().exists()
    assert is_running(started.process.identity)


async def test_invalid_requests_do_not_affect_the_zygote(world: World) -> None:
    await (await world.start("report", "0")).process.wait()
    for line in (b"nonsense\n", b'{"op": "dance"}\n', b'{"op": "spawn"}\n', b"[]\n", b'{"op": "hel'):
        folder = os.open(world.socket().parent, os.O_PATH)
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        os.close(folder)
        writer.write(line)
        if line.endswith(b"\n"):
            assert "error" in json.loads(await reader.readline())
        writer.close()
        await writer.wait_closed()

    assert await (await world.start("report", "6", uid="next")).process.wait() == ExitStatus(code=6)


def test_an_idle_zygote_exits_when_its_socket_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "SOCKET_CHECK", 0.01)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        serving = zygote.Zygote(listener, path, 0.0)
        path.unlink()
        handler = signal.getsignal(signal.SIGCHLD)
        try:
            serving.serve()
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, handler)


async def test_folder_and_socket_are_private(world: World) -> None:
    await (await world.start("report", "0")).process.wait()

    assert world.socket().stat().st_mode & 0o777 == 0o600
    assert world.socket().parent.stat().st_mode & 0o777 == 0o700
