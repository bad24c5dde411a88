"""A process in a session of its own that runs Ray, and the end of all of its processes.

When the process that started a Ray ends, two of Ray's agents stay for minutes (`ray::DashboardAgent`,
`ray::RuntimeEnvAgent`); they overwrite their environment and their command line. All processes of one Ray are found by
their session. `ray stop` would end every Ray of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.processes import all_stats
from loadtests.ray_policy.outcome import Outcome

ROOT = Path(__file__).parents[2]
DECISION = re.compile(r": \d+->\d+ replicas: ")
"""In the lines of our policy."""
PAUSE = 0.1
"""Seconds between two looks for processes that were killed."""
PATIENCE = 30.0
"""Seconds until killed processes must be gone."""


@dataclass(frozen=True, slots=True)
class RayRun:
    """A finished run: its outcomes, the lines of our policy in the controller's log, and its session."""

    outcomes: tuple[Outcome, ...]
    log: tuple[str, ...]
    session: int


SHORT = "/tmp"  # noqa: S108 - Ray has long paths of Unix sockets below it; mkdtemp makes a private folder


def measure(policies: Sequence[str], seconds: float) -> RayRun:
    """Run the load under these policies in a new Ray. Raises RuntimeError with Ray's output when it fails, and
    subprocess.TimeoutExpired after `seconds`. No process and no file stays.
    """
    temporary = Path(tempfile.mkdtemp(prefix="knray", dir=SHORT))
    try:
        out = temporary / "outcomes.json"
        command = [sys.executable, "-m", "loadtests.ray_policy.driver", str(out), str(temporary / "ray"), *policies]
        with _session(command, temporary / "output") as process:
            process.wait(seconds)
        if process.returncode or not out.exists():
            raise RuntimeError(f"Ray ended with {process.returncode}: {(temporary / 'output').read_text()[-4000:]}")
        logs = sorted((temporary / "ray").glob("session_2*/logs/serve/controller_*.log"))
        lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if DECISION.search(line)]
        outcomes = tuple(Outcome(**entry) for entry in json.loads(out.read_text()))
        return RayRun(outcomes, tuple(lines), process.pid)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _session(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command in a new session. At the end, every process of the session is killed."""
    environment = {
        **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while members := session_members(process.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {members} of Ray's session {process.pid} cannot be killed: end them by hand")
        time.sleep(PAUSE)
    process.wait()


def session_members(session: int) -> list[int]:
    """Return the processes of a session, without zombies."""
    return [pid for pid, stat in all_stats() if stat.session == session and stat.state != "Z"]
