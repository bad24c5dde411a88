"""A platform that runs in its own processes, started and stopped by the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadtests.bench.processes import processes_of
from tests.scenarios.world import infer_body
from tests.support import models
from tests.support.ports import free_ports

KNODEL = [sys.executable, "-m", "serving.cli.main"]
PATIENCE = 90  # s for one command


class Machine:
    """A state folder with its ports and artifacts."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.folder = folder
        self.port, self.control, tls = free_ports(3)
        self.environment = os.environ | {"KNODEL_STATE": str(self.state), "KNODEL_CONTROL_TLS_PORT": str(tls)}

    def run(self, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
        """Run a command and return its stdout. Fail the test if the exit code is not `code`."""
        done = self.complete(*arguments, stdin=stdin)
        assert done.returncode == code, f"knodel {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def complete(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; return the completed process."""
        return subprocess.run(
            [*KNODEL, *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def up(self, code: int = 0) -> str:
        """Run `knodel up --detach`."""
        return self.run("up", "--detach", "--port", str(self.port), "--control-port", str(self.control), code=code)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command without waiting for its end."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen([*KNODEL, *arguments], env=self.environment, stdout=quiet, stderr=quiet)

    def kill(self) -> None:
        """Send SIGKILL to `knodel up`."""
        os.kill(self.facts()["pid"], signal.SIGKILL)

    def facts(self) -> dict[str, Any]:
        """Return the content of `platform.json`."""
        found: dict[str, Any] = json.loads((self.state / "platform.json").read_text())
        return found

    def artifact(self, name: str) -> str:
        """Write a model file of `tests.support.models`; return its path."""
        return str(models.write(self.folder, name))

    def model(self, name: str) -> dict[str, Any]:
        """Return the Model."""
        found: dict[str, Any] = json.loads(self.run("get", name, "-o", "json"))
        return found

    def ask(self, name: str, value: float = 1.0) -> float:
        """Send a prediction through the gateway."""
        answer = json.loads(self.run("predict", name, "-d", json.dumps(infer_body(value))))
        return float(answer["outputs"][0]["data"][0])

    def processes(self) -> list[str]:
        """Return the processes of this state folder by role."""
        return [role for _, role in processes_of(self.state)]


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Yield a machine, and stop its platform at the end of the test."""
    made = Machine(folder)
    try:
        yield made
    finally:
        subprocess.run([*KNODEL, "down", "--force"], env=made.environment, capture_output=True, check=False)
