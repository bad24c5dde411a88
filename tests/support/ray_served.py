"""A model server with a Ray Serve application, in a process of its own, and what it costs."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.ports import free_ports
from tests.testbed.waiting import becomes

STARTS_WITHIN = 400.0
"""Seconds; on two busy cores a Ray takes a minute."""


class Answer(NamedTuple):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Process(NamedTuple):
    """A process of a Ray."""

    pid: int
    name: str
    seconds: float  # of CPU
    pss: float  # MiB


@dataclass(frozen=True, slots=True)
class RayServed:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def ask(self, path: str, body: bytes | None = None, *, method: str = "", port: int = 0, **headers: str) -> Answer:
        """Send a request; header names have underscores for dashes. Raises OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method or ("GET" if body is None else "POST"), path, body, named)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def is_ready(self) -> bool:
        """Whether the server is ready. Raises AssertionError once it has ended."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        with suppress(OSError, http.client.HTTPException):
            return self.ask("/v2/health/ready").status == 200
        return False

    def await_ready(self) -> None:
        """Wait until the server is ready."""
        assert becomes(self.is_ready, STARTS_WITHIN), self.log.read_text()[-4000:]

    @property
    def session(self) -> int:
        """The session of the Ray's processes: the guard's."""
        (found,) = (one.pid for one in children_of(self.process.pid) if "upstream.guard" in one.name)
        return found


def children_of(pid: int) -> list[Process]:
    """Return the direct children of a process."""
    return [one for number in _numbers() if _stat(number, 1) == pid and (one := _process(number))]


def members_of(session: int) -> list[Process]:
    """Return all living processes of a session."""
    return [one for number in _numbers() if _stat(number, 3) == session and (one := _process(number))]


def kill(members: list[Process], part: str) -> int:
    """Kill the process whose name has `part`, and return its id."""
    (found, *_) = (one for one in members if part in one.name)
    os.kill(found.pid, signal.SIGKILL)
    return found.pid


@contextmanager
def ray_served(folder: Path, *arguments: str, name: str = "own") -> Iterator[RayServed]:
    """Serve `tests/support/ray_app.py` as app.py in `folder`, unless the folder has files already."""
    files = folder / "files"
    if not files.exists():
        files.mkdir()
        shutil.copy(Path(__file__).with_name("ray_app.py"), files / "app.py")
    data, management = free_ports(2)
    argv = [
        sys.executable, "-m", "serving.modelserver", "--name", name, "--storage-uri", files.as_uri(),
        "--format", "ray", "--allow-code", *arguments,
    ]  # fmt: skip
    log = folder / "server.log"
    with log.open("ab") as output, tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as scratch:
        environ = {**os.environ, "PORT": str(data), "MANAGEMENT_PORT": str(management), "TMPDIR": scratch}
        with subprocess.Popen(argv, env=environ, stdout=output, stderr=output) as process:
            try:
                yield RayServed(process, data, log)
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _numbers() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int, field: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return -1 if fields[0] == "Z" else int(fields[field])
    return -1


def _process(pid: int) -> Process | None:
    with suppress(OSError, StopIteration):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        name = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        pss = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return Process(pid, name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), pss / 1024)
    return None
