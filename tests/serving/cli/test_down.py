"""Test `down`: it stops a running platform in order, and finds the processes of a killed one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.embedded.activator.process import ActivatorProcess
from clusters.embedded.kubelet.process.environment import PROCESS_OF, PROCESS_ROLE
from clusters.embedded.store.lock import FolderLock
from clusters.gateway.envoy import Envoy
from serving.cli.orphans import find_orphans
from serving.types.settings.state import ACTIVATOR_FOLDER, GATEWAY_FOLDER
from tests.serving.cli.conftest import Knodel, announce

PLATFORM = """
import signal, sys, time
from pathlib import Path
from clusters.embedded.store.lock import FolderLock
from serving.types.settings.state import forget
ends = signal.sigwait if sys.argv[2] == "orderly" else lambda _: time.sleep(60)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with FolderLock(Path(sys.argv[1])):
    print("ready", flush=True)
    ends({signal.SIGTERM})
    forget(Path(sys.argv[1]))
"""


@contextmanager
def child(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process in its own session that has printed a line; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def platform(state: Path, manner: str) -> ExitStack:
    """Run a process that holds the lock of the folder and handles SIGTERM in this way."""
    stack = ExitStack()
    process = stack.enter_context(child("-c", PLATFORM, str(state), manner))
    announce(state, "127.0.0.1:9")
    assert process.poll() is None
    return stack


def marked(state: Path, role: str, manner: str = "") -> ExitStack:
    """Run a process as the kubelet starts it."""
    stubborn = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})" if manner == "stubborn" else ""
    program = f"import signal, time; {stubborn or 'pass'}; print('up', flush=True); time.sleep(60)"
    stack = ExitStack()
    stack.enter_context(child("-c", program, **{PROCESS_OF: str(state), PROCESS_ROLE: role}))
    return stack


@contextmanager
def services(state: Path) -> Iterator[int]:
    """Start a real gateway and activator without a control plane; yield the port of the gateway."""
    state.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    async def leave() -> list[int]:
        clock = SystemClock()
        gateway = Envoy(state / GATEWAY_FOLDER, "127.0.0.1", port, clock)
        activator = ActivatorProcess(state / ACTIVATOR_FOLDER, clock)
        await gateway.start()
        await activator.start()
        await gateway.close()
        activator.close()
        assert activator.identity is not None
        return [gateway.pid or 0, activator.identity.pid]

    pids = asyncio.run(leave())
    try:
        yield port
    finally:
        for remain in find_orphans(state):
            if remain.identity.pid in pids:
                os.kill(remain.identity.pid, signal.SIGKILL)


def test_down_without_a_platform_creates_nothing(knodel: Knodel, state: Path) -> None:
    done = knodel("down")

    assert (done.code, done.err) == (0, "")
    assert done.out == f"no platform runs on {state}: nothing to stop\n"
    assert not state.exists()


def test_a_running_platform_is_stopped_and_waited_for(knodel: Knodel, state: Path) -> None:
    with platform(state, "orderly"):
        done = knodel("down")

        assert done.code == 0, done.err
        assert "has ended (platform " in done.out
        assert not (state / "platform.json").exists()
        assert knodel("down").out.startswith("no platform runs")


def test_a_platform_that_does_not_end_in_time_is_exit_code_4_and_lives(knodel: Knodel, state: Path) -> None:
    with platform(state, "stubborn"):
        done = knodel("down", "--timeout", "0.2s")

        assert done.code == 4
        assert "down --force" in done.err
        assert len(done.err.splitlines()) == 1
        assert (state / "platform.json").exists()


def test_force_kills_a_platform_that_does_not_end_and_what_it_started(knodel: Knodel, state: Path) -> None:
    with platform(state, "stubborn"), marked(state, "pod"):
        done = knodel("down", "--timeout", "0.2s", "--force", "-o", "json")

        assert done.code == 0, done.err
        assert [word.split()[0] for word in json.loads(done.out)["ended"]] == ["platform", "pod"]
        assert find_orphans(state) == []
        assert not (state / "platform.json").exists()


@pytest.mark.fault("I10")
def test_a_file_of_a_platform_that_was_killed_is_removed(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")

    assert knodel("down").code == 0
    assert not (state / "platform.json").exists()


def test_the_processes_that_a_killed_platform_left_are_ended(knodel: Knodel, state: Path) -> None:
    with marked(state, "pod"), marked(state, "pod", "stubborn"), marked(state, "zygote"):
        state.mkdir()
        done = knodel("down", "--timeout", "0.1s")

        assert done.code == 0, done.err
        assert find_orphans(state) == []
        assert done.out.count("pod ") == 2
        assert done.out.count("zygote ") == 1


def test_processes_whose_folder_was_removed_are_ended_too(knodel: Knodel, state: Path) -> None:
    with marked(state, "pod"):
        assert knodel("down").code == 0
        assert find_orphans(state) == []


def test_processes_of_another_folder_stay(knodel: Knodel, state: Path, tmp_path: Path) -> None:
    state.mkdir()
    other = tmp_path / "other"
    with marked(other, "pod"):
        assert knodel("down").out.startswith("no platform runs")
        assert len(find_orphans(other)) == 1


@pytest.mark.parametrize("recorded", [True, False])
def test_gateway_and_activator_are_ended_also_when_a_crash_lost_their_records(
    knodel: Knodel, state: Path, recorded: bool
) -> None:
    with services(state) as port:
        if not recorded:
            for record in state.glob("*/*.pid.json"):
                record.unlink()
        assert [remain.role for remain in find_orphans(state)] == ["gateway", "activator"]

        done = knodel("down")

        assert done.code == 0, done.err
        assert find_orphans(state) == []
        assert not list(state.glob("*/*.pid.json"))
        assert not list(state.glob("*/*.sock"))
        with socket.create_server(("127.0.0.1", port)):
            pass


@pytest.mark.parametrize("recorded", [True, False])
def test_the_services_of_the_original_are_not_ended_through_a_copy_of_its_folder(
    knodel: Knodel, state: Path, tmp_path: Path, recorded: bool
) -> None:
    with services(state):
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-a", state, copy], check=True)
        if not recorded:
            for record in state.glob("*/*.pid.json"):
                record.unlink()
        before = find_orphans(state)
        assert [remain.role for remain in before] == ["gateway", "activator"]

        assert find_orphans(copy) == []
        assert knodel("down", "--state", str(copy)).code == 0

        assert find_orphans(state) == before
        (tmp_path / "link").symlink_to(state)
        assert find_orphans(tmp_path / "link") == before


def test_reading_the_files_of_a_gateway_does_not_make_a_process_one(knodel: Knodel, state: Path) -> None:
    (state / GATEWAY_FOLDER).mkdir(parents=True)
    program = "print('up', flush=True); import time; time.sleep(60)"
    with child("-c", program, "-c", str(state / GATEWAY_FOLDER / "envoy.json")) as reader:
        assert knodel("down").out.startswith("no platform runs")
        assert reader.poll() is None


def test_another_down_at_the_same_time_is_waited_for(knodel: Knodel, state: Path) -> None:
    state.mkdir()
    lock = FolderLock(state)
    lock.acquire()
    (state / "lock").write_text("")  # who takes the lock tells its pid a moment later

    done = knodel("down", "--timeout", "0.1s")

    lock.release()
    assert done.code == 4
    assert str(state) in done.err
    assert knodel("down").code == 0
