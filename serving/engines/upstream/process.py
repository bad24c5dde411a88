"""The process of an engine that is an HTTP server: start it, read what it writes, end it with all its children."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, Final

from clusters.base.redact import one_line
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ENGINE_PREFIX, short_folder
from serving.engines.upstream.line_limit import LineLimit
from serving.engines.upstream.program import Command
from serving.engines.upstream.session import signal_session

log = logging.getLogger(__name__)

SOCKET: Final = "engine.sock"
GUARDED: Final = (sys.executable, "-P", "-m", "serving.engines.upstream.guard")
"""Before the command of a program that does not end with its standard input."""
MAX_PATH: Final = 100  # bytes of a Unix socket's path; the kernel's limit is 107
MAX_LINE: Final = 2000  # characters of a line that are kept
GRACE: Final = 5.0  # s for a process to end by itself, which releases its shared memory
KEPT_LINES: Final = 8
"""Lines that an error of the start quotes."""


class SocketFolder:
    """A private folder for the socket of an engine, below $TMPDIR if its path is short enough for a socket.

    Raises LoadFailed.
    """

    def __init__(self) -> None:
        self._folder = short_folder(ENGINE_PREFIX, SOCKET, MAX_PATH)

    @property
    def socket(self) -> Path:
        """The path of the socket."""
        return self._folder.path / SOCKET

    def renew(self) -> None:
        """Use a new folder, after the process has ended. Somebody may have removed the old one."""
        self.close()
        self._folder = short_folder(ENGINE_PREFIX, SOCKET, MAX_PATH)

    def close(self) -> None:
        """Remove the folder."""
        self._folder.release()


class EngineProcess:
    """A process in a session of its own, whose standard input is a pipe that is never written to.

    Programs end when the pipe is closed, so they end with this process, also after kill -9. Its output
    goes to our log, within `LineLimit`, and, as the last lines, to the error of a start that fails.
    """

    def __init__(self, command: Command) -> None:
        try:
            self._process = subprocess.Popen(
                list(command.argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env={**os.environ, **command.environ}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise LoadFailed(f"the engine {command.argv[0]} cannot be started: {error.strerror}") from error
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        output = self._process.stdout
        if output is None:
            raise LoadFailed("the engine has no output")
        self._reader = threading.Thread(target=self._read, args=(output,), name="engine-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the process, of its session and of its process group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def exit_reason(self) -> str:
        """Return how the process ended, with the last lines that it wrote."""
        code = self._process.wait()
        self._reader.join(1.0)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        last = one_line(" | ".join(self._lines), 1000)
        return f"{how}: {last}" if last else how

    def close(self) -> None:
        """End the process by its standard input, kill what is left of it and its children, and wait for it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        signal_session(self._process.pid, signal.SIGKILL)  # its children too, which may have outlived it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)
        if not self._reader.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self, output: IO[bytes]) -> None:
        limit = LineLimit()
        with contextlib.suppress(OSError, ValueError):  # closed
            while line := output.readline(MAX_LINE):
                text = one_line(line.decode("utf-8", "replace").strip(), MAX_LINE)
                if not text:
                    continue
                self._lines.append(text)
                left_out = limit.admit(text, time.monotonic())
                if left_out:
                    log.info("engine: %d lines like the next one were left out", left_out)
                if left_out is not None:
                    log.info("engine: %s", text)
