"""A machine whose platform can be killed at a chosen write: how a test starts it, arms it and reads what it wrote."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusters.base.errors import KnodelError
from clusters.base.objects import Kind, Object
from serving.client.client import Client
from serving.client.state import LocalPlatform
from serving.types.settings.state import Facts
from tests.faults.kit.crash import FOREVER, Countdown, When, Written, countdown_of, read_transcript, transcript_of
from tests.platform.machine import KNODEL, Machine

READY_WITHIN = 30.0  # s
LOOK_EVERY = 0.01  # s
QUIET_WITHIN = 60.0  # s until a chapter without a crash has written its last
NAMESPACE = "default"


class CrashingMachine(Machine):
    """A machine with one platform, whose parent starts it again in a fraction of a second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.countdown = Countdown(countdown_of(folder))
        self.crashes = 0
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.crash.platform", str(folder), str(self.port), str(self.control)],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._pid = 0

    def begin(self) -> None:
        """Start the platform, and return before it is ready."""
        stdin, stdout = self._pipes()
        stdin.write(b"start\n")
        stdin.flush()
        self._pid = int(stdout.readline().split()[1])

    def serve(self) -> None:
        """Start the platform and wait until it is ready."""
        self.begin()
        deadline = time.monotonic() + READY_WITHIN
        while not self.is_ready():
            assert not self.has_ended(), f"the platform ended at its start: see {self.folder}/platform.log"
            assert time.monotonic() < deadline, "the platform is not ready"
            time.sleep(LOOK_EVERY)

    def is_ready(self) -> bool:
        """Whether the platform of now says that it is ready."""
        facts = Facts.read(self.state)
        return facts is not None and facts.pid == self._pid

    def has_ended(self) -> bool:
        """Whether it was killed. True once; then `begin` or `serve` starts another one."""
        if not self._pid:
            return False
        _, stdout = self._pipes()
        if not select.select([stdout], [], [], 0)[0]:
            return False
        said = stdout.readline()
        self._pid = 0
        assert said == b"ended -9\n", f"the platform ended by itself: {said!r}, see {self.folder}/platform.log"
        self.crashes += 1
        return True

    def arm(self, write: int, when: When) -> None:
        """Kill the platform at that write from now on."""
        self.countdown.arm(write, when)

    def count(self) -> None:
        """Count the writes from now on, and kill nobody."""
        self.countdown.arm(FOREVER)

    @property
    def counted(self) -> int:
        """Writes since `count`."""
        return FOREVER - self.countdown.left

    def client(self) -> Client:
        """Of the platform that runs, or ran last."""
        return Client(LocalPlatform.find(self.state), timeout=5.0)

    def list(self, kind: Kind) -> list[Object]:
        """All objects of the kind; the platform must run."""
        found: list[Object] = self.client().list(kind, None)["items"]
        return found

    def position(self) -> int:
        """Where the transcript ends now."""
        path = transcript_of(self.folder)
        return path.stat().st_size if path.exists() else 0

    def written(self, start: int) -> Iterator[Written]:
        """What was committed since that position."""
        return read_transcript(self.folder, start)

    def end(self) -> None:
        """End the platform's parent, and the platform with `kill -9` when it runs. Idempotent."""
        if self._parent.returncode is not None:
            return
        if self._pid and not self.has_ended():
            os.kill(self._pid, signal.SIGKILL)
        self._parent.communicate(timeout=10)
        self._pid = 0

    def _pipes(self) -> Any:
        return self._parent.stdin, self._parent.stdout


@contextmanager
def crashing(folder: Path) -> Iterator[CrashingMachine]:
    """A machine with its platform up; all is ended at the end, however the test ended."""
    made = CrashingMachine(folder)
    try:
        made.serve()
        yield made
    finally:
        made.end()
        subprocess.run([*KNODEL, "down", "--force"], env=made.environment, capture_output=True, check=False)


def quietly(made: CrashingMachine, wait: float) -> None:
    """Return once nothing was written for so many seconds; the platform counts."""
    began = since = time.monotonic()
    last = made.counted
    while time.monotonic() < since + wait:
        if made.counted != last:
            last, since = made.counted, time.monotonic()
        assert since < began + QUIET_WITHIN, f"writes do not end: {last} by now"
        time.sleep(LOOK_EVERY)


FAILED = (OSError, KnodelError)
"""What a caller gets whose platform dies before the answer."""
