"""A platform that one user of the machine runs, beside others."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.otherusers.users import command_as
from tests.scenarios.world import infer_body
from tests.support import models
from tests.support.ports import free_ports

PATIENCE = 60.0  # s for one command
PROC = Path("/proc")


class Platform:
    """A state folder of the user `uid`, and the command as that user runs it."""

    def __init__(self, uid: int, folder: Path, state: Path | None = None) -> None:
        self.uid = uid
        self.folder = folder
        self.state = state or folder / "state"
        self.gateway, self.control, self.tls = free_ports(3)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, as the user."""
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "KNODEL_STATE": str(self.state),
            "KNODEL_CONTROL_TLS_PORT": str(self.tls),
        }
        command = command_as(self.uid, sys.executable, "-m", "serving.cli.main", *arguments)
        return subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def up(self) -> subprocess.CompletedProcess[str]:
        """`knodel up --detach`."""
        return self.run("up", "--detach", "--port", str(self.gateway), "--control-port", str(self.control))

    def must(self, *arguments: str) -> str:
        """Return stdout of a command that succeeds."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"knodel {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def deploy(self, name: str) -> None:
        """Serve a small model with one replica at all times.

        Without the limit, the autoscaler adds a replica when requests wait while the only one is being restarted.
        """
        path = models.write(self.folder, "double")
        self.must("deploy", name, "--uri", str(path), "--min", "1", "--max", "1")

    def predict(self, name: str) -> Any:
        """Return the model's answer to 1.0."""
        return json.loads(self.must("predict", name, "-d", json.dumps(infer_body(1.0))))["outputs"][0]["data"]

    def facts(self) -> dict[str, Any]:
        """What `platform.json` has."""
        found: dict[str, Any] = json.loads((self.state / "platform.json").read_text())
        return found

    def processes(self) -> dict[int, str]:
        """Return the commands of the user's processes, by pid."""
        return {pid: command for pid in pids_of(self.uid) if (command := command_of(pid))}

    def listening(self) -> set[int]:
        """Return the TCP ports on which processes of the user listen."""
        lines = [
            line.split() for name in ("tcp", "tcp6") for line in (PROC / "net" / name).read_text().splitlines()[1:]
        ]
        return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and line[7] == str(self.uid)}

    def close(self) -> None:
        """End all that the user runs, and remove the folder."""
        if self.state.is_dir():
            self.run("down", "--force")
        for pid in pids_of(self.uid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def platform_of(uid: int) -> Iterator[Platform]:
    """A platform of a user with a home folder that others may read, as many are; it is not started yet."""
    folder = Path(tempfile.mkdtemp(prefix="knodel-user-", dir="/tmp"))  # pytest's folders are closed to the user
    os.chown(folder, uid, uid)
    folder.chmod(0o755)
    made = Platform(uid, folder)
    try:
        yield made
    finally:
        made.close()


def pids_of(uid: int) -> list[int]:
    """Return the processes of a user."""
    found = []
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found


def command_of(pid: int) -> str:
    """Return the command line of a process; empty when it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
