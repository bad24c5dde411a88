"""The guard of a program that does not end with its standard input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serving.engines.upstream import guard
from tests.support.wait import eventually

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print(os.getpid(), child.pid, repr(sys.stdin.read()), flush=True)
time.sleep(1000)
"""
"""A program with a child, which ignores the end of its standard input."""


def start(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", guard.__name__, *argv],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def family(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the ids of the program and of its child."""
    assert process.stdout is not None
    one, two, given = process.stdout.readline().split()
    assert given == b"''"  # it has an empty standard input
    return [int(one), int(two)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_that_of_the_program(code: int) -> None:
    with start(sys.executable, "-c", f"print('done'); raise SystemExit({code})") as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
        assert process.wait(10) == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_the_signal_is_that_of_the_program(number: signal.Signals) -> None:
    with start(sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})") as process:
        assert process.wait(10) == -number


def test_a_program_that_does_not_exist_is_named() -> None:
    with start("/no/such/program") as process:
        assert process.stderr is not None
        assert process.stderr.read() == b"/no/such/program: No such file or directory\n"
        assert process.wait(10) == guard.NOT_FOUND


async def test_the_end_of_the_input_ends_the_program_and_its_children() -> None:
    with start(sys.executable, "-c", FAMILY) as process:
        pids = family(process)
        assert all(map(is_alive, pids))
        assert process.stdin is not None
        process.stdin.close()  # as after kill -9 of the server
        await eventually(lambda: not any(map(is_alive, pids)))
        assert process.wait(10) == -signal.SIGTERM


async def test_what_the_program_leaves_ends_with_it() -> None:
    sleep = "[sys.executable, '-c', 'import time; time.sleep(1000)']"
    left = f"import subprocess, sys; print(subprocess.Popen({sleep}).pid)"
    with start(sys.executable, "-c", left) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process.wait(10) == 0
        assert not is_alive(child)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills it")
async def test_the_program_ends_with_the_guard() -> None:
    with start(sys.executable, "-c", FAMILY) as process:
        program, child = family(process)
        process.kill()
        await eventually(lambda: not is_alive(program))
        os.kill(child, signal.SIGKILL)  # the server kills the whole group
