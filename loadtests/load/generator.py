"""Locust as a process of its own: started with a plan, waited for, read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from loadtests.load.answers import Answers, read_answers
from loadtests.load.plan import ANSWERS, BEGUN, FOLDER, Plan

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
ROOT = Path(__file__).parents[2]
LEEWAY = 60.0  # s that a generator may take beyond its plan: its start, and answers that are late
LOOK = 0.01  # s between looks whether it has begun
LOG_TAIL = 2000  # characters of a log that a failure shows


class Generator:
    """A load that goes on; used as a context, so that no generator outlives who started it."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for file in (ANSWERS, BEGUN):
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

    def begun(self) -> float:
        """Return when the first request is due: this moment of the monotonic clock. Raises SystemExit."""
        deadline = time.monotonic() + LEEWAY
        while not (self._folder / BEGUN).exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the load generator has not begun: {self._said()}")
            time.sleep(LOOK)
        return float((self._folder / BEGUN).read_text())

    def answers(self) -> Answers:
        """What came of it, at its end. Raises SystemExit when the generator failed."""
        try:
            code = self._process.wait(self._within)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"the load generator has not ended within {self._within:.0f} s: {self._said()}") from None
        if code or not (self._folder / ANSWERS).exists():
            raise SystemExit(f"the load generator ended with {code}: {self._said()}")
        return read_answers(self._folder)

    @property
    def pid(self) -> int:
        """Of locust."""
        return self._process.pid

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]


def play(plan: Plan, folder: Path) -> Answers:
    """A whole load. Raises SystemExit."""
    with Generator(plan, folder) as generator:
        return generator.answers()


def _command() -> Sequence[str]:
    locust = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"]
    return [*locust, "--users", "1", "--spawn-rate", "1", "--exit-code-on-error", "0", "--loglevel", "WARNING"]
