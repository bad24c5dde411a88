"""Run locust in a process of its own: start it with a plan, wait for it, and read the responses."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loadtests.load.plan import BEGUN, FOLDER, RESPONSES, Plan
from loadtests.load.responses import Responses, read_responses

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
ROOT = Path(__file__).parents[2]
LEEWAY = 60.0  # s beyond the plan, for the start and late responses
LOOK = 0.01  # s between two checks whether it has started
LOG_TAIL = 2000  # characters of the log in an error message


class Generator:
    """A running load. As a context manager it ends the process."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for file in (RESPONSES, BEGUN):
            (folder / file).unlink(missing_ok=True)
        plan.write(folder)
        self._folder = folder
        self._log = folder / "locust.log"
        self._within = (plan.arrivals[-1] if plan.arrivals else 0.0) + plan.patience + LEEWAY
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _command(), env=os.environ | {FOLDER: str(folder)}, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def start_time(self) -> float:
        """Wait until the load begins. Return the due time of the first request on the monotonic clock. Raises
        SystemExit.
        """
        deadline = time.monotonic() + LEEWAY
        while not (self._folder / BEGUN).exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the load generator did not start: {self._log_tail()}")
            time.sleep(LOOK)
        return float((self._folder / BEGUN).read_text())

    def responses(self) -> Responses:
        """Wait for the end of the load and return the responses. Raises SystemExit if the generator fails."""
        try:
            code = self._process.wait(self._within)
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"the load generator did not end within {self._within:.0f} s: {self._log_tail()}"
            ) from None
        if code or not (self._folder / RESPONSES).exists():
            raise SystemExit(f"the load generator failed with exit code {code}: {self._log_tail()}")
        return read_responses(self._folder)

    @property
    def pid(self) -> int:
        """Process id of locust."""
        return self._process.pid

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]


def play(plan: Plan, folder: Path) -> Responses:
    """Run a whole load and return the responses. Raises SystemExit."""
    with Generator(plan, folder) as generator:
        return generator.responses()


def _command() -> Sequence[str]:
    locust = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"]
    return [*locust, "--users", "1", "--spawn-rate", "1", "--exit-code-on-error", "0", "--loglevel", "WARNING"]
