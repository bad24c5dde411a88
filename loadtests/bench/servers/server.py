"""A measured server: a process group of its own, pinned to one core."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from clusters.embedded.kubelet.process.zygote import SINGLE_THREADED
from loadtests.bench.processes import members_of, pss
from loadtests.bench.servers.load import PATH, Load

HOST = "127.0.0.1"
PATIENCE = 60.0  # s until a timeout of a start or a response
GRACE = 10.0  # s from SIGTERM to SIGKILL
LOOK = 0.002  # s between attempts to reach a starting server
NOT_YET = frozenset({0, 404, 503})  # no connection, no model, not ready; any other status is final
LOG_TAIL = 2000  # characters of the log in an error message


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports; `more` is for a metrics page or similar."""

    http: int
    grpc: int
    more: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Command line of a process; `env` extends the environment of this process."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


class Server:
    """A server from its start to its end."""

    def __init__(self, label: str, launch: Launch, port: int, log: Path, core: int) -> None:
        self._label = label
        self._port = port
        self._log = log
        self._began = time.perf_counter()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                ["taskset", "--cpu-list", str(core), *launch.argv],
                env={**os.environ, **SINGLE_THREADED, **launch.env}, cwd=launch.cwd, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def first_answer(self, load: Load) -> tuple[float, bytes]:
        """Start the server; return seconds from exec to the first 200, and its body. Raises SystemExit if there is
        none.
        """
        while True:
            status, body = ask(self._port, load)
            took = time.perf_counter() - self._began
            if status == http.client.OK:
                return took, body
            if status not in NOT_YET or took > PATIENCE or self._process.poll() is not None:
                answer = f"{status} {body[:200]!r}"
                raise SystemExit(f"{self._label} gave no 200 within {took:.1f} s ({answer}): {self._log_tail()}")
            time.sleep(LOOK)

    @property
    def pid(self) -> int:
        """Pid of the process and of its group."""
        return self._process.pid

    def memory(self) -> int:
        """PSS of all of its processes in bytes."""
        return sum(pss(pid) for pid in members_of(self._process.pid))

    def stop(self) -> None:
        """Stop the server: SIGTERM, then SIGKILL to the rest of the group."""
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in list(members_of(self._process.pid)):
            os.kill(pid, signal.SIGKILL)

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]


def ask(port: int, load: Load) -> tuple[int, bytes]:
    """Return (status, body) of one request over a connection of its own; status 0 if there is no response."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        connection.request("POST", PATH, load.body, dict(load.headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode()
    finally:
        connection.close()
