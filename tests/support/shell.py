"""A shell into which commands are typed one after another, as a person does."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType


class Shell:
    """One bash. Variables, the working directory and background jobs last until its end."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=dict(environment), start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def run(self, command: str, within: float) -> str:
        """Type a command; return what it prints, stderr included.

        Raises AssertionError when it fails, or has not ended after `within` seconds.
        """
        mark = f"end-{uuid.uuid4().hex}"
        assert self._bash.stdin is not None
        # A program that reads its stdin must not get the next commands.
        self._bash.stdin.write(f"{{ {command.rstrip()}\n}} < /dev/null\ncode=$?; echo; echo {mark} $code\n")
        self._bash.stdin.flush()
        printed, deadline = "", time.monotonic() + within
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{command}: not ended after {within:.0f} s\n{printed}") from None
            if line.startswith(mark):
                assert line.split() == [mark, "0"], f"{command}: exit code {line.split()[1]}\n{printed}"
                return printed.removesuffix("\n")
            printed += line

    def _read(self) -> None:
        assert self._bash.stdout is not None
        for line in self._bash.stdout:
            self._lines.put(line)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """End the shell and its background jobs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._reader.join()
        for stream in (self._bash.stdin, self._bash.stdout):
            if stream is not None:
                stream.close()
