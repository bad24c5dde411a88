"""`kill -9` of all processes of a machine at random moments: the state loads, the models come back, nothing stays."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from loadtests.bench.processes import processes_of
from tests.platform.machine import Machine, machine
from tests.platform.test_life import check_no_duplicates

LOOPS, ALL_LOOPS = 10, 500
LATEST = 0.9  # s from the start of what is interrupted to the kill: a start takes one, a change less
FACTORS = {"double": 2.0, "triple": 3.0}


@pytest.mark.fault("I11", shortened="10 kills, not 500")
@pytest.mark.timeout(3600)
def test_a_machine_comes_back_from_the_death_of_all_its_processes(tmp_path: Path, full: bool) -> None:
    source = random.Random(0)
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "steady", "--uri", here.artifact("double"), "--min", "1")
        here.run("deploy", "moving", "--uri", here.artifact("double"), "--min", "1")
        for number in range(ALL_LOOPS if full else LOOPS):
            interrupted(here, source, number)
            if source.random() < 0.3:
                again(here, source)
            here.up()
            here.run("wait", "steady")
            assert here.ask("steady") == 2.0, number
            here.run("wait", "moving")
            assert here.ask("moving") in FACTORS.values(), number
        here.run("promote", "moving")
        check_no_duplicates(here)
        here.run("down")
        assert here.processes() == []


def interrupted(here: Machine, source: random.Random, number: int) -> None:
    """Everything dies in the middle of a change, or just before or after it."""
    artifact = here.artifact(source.choice(list(FACTORS)))
    version = ("--version", str(number))
    killed_beside(here, source, here.start("deploy", "moving", "--uri", artifact, *version))


def again(here: Machine, source: random.Random) -> None:
    """Everything dies in the middle of a start."""
    ports = ("--port", str(here.port), "--control-port", str(here.control))
    killed_beside(here, source, here.start("up", "--detach", *ports))


def killed_beside(here: Machine, source: random.Random, command: subprocess.Popen[bytes]) -> None:
    """Kill all, in any order, at some moment of the command."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.wait(source.uniform(0, LATEST))
    while pids := [pid for pid, _ in processes_of(here.state)]:
        source.shuffle(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # who is dead has no command line any more
    command.wait()
