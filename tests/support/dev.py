"""A running `knodel dev`, whose lines and answers tests wait for."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.ports import free_port

WITHIN = 30.0  # s; a start takes one on an idle machine
COMMAND = (sys.executable, "-m", "serving.cli.main", "dev")
SERVER = "serving.cli.dev.server_main"


class Dev:
    """`knodel dev PATH` with these options; at the end it is stopped, and all it has started must have ended."""

    def __init__(self, path: Path, *options: str, name: str = "m") -> None:
        self.port = free_port()
        self.name = name
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [*COMMAND, str(path), "--port", str(self.port), "--name", name, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PORT_OF_DEV": str(self.port)},  # by which its server processes are found
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, *words: str) -> str:
        """Return the next line with these words. Raises AssertionError without one."""
        deadline = time.monotonic() + WITHIN
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"{words} did not appear:\n" + "".join(self.lines)
            if all(word in line for word in words):
                return line

    def post(self, inputs: dict[str, Any], path: str = "generate") -> tuple[int, dict[str, Any]]:
        """Send inputs by name; return status and body."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v2/models/{self.name}/{path}",
            json.dumps(inputs).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def version(self) -> str:
        """Return the version that answers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/models/{self.name}", timeout=WITHIN) as answer:
            return str(json.load(answer)["versions"][0])

    def servers(self) -> list[int]:
        """Return the ids of its server processes that run."""
        return self._descendants(SERVER)

    def helpers(self) -> list[int]:
        """Return the ids of the processes `sleep 600`, which its models have started."""
        return self._descendants("sleep")

    def __enter__(self) -> Dev:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(WITHIN)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(WITHIN)
            if self.process.stdout is not None:
                self.process.stdout.close()
        assert self.servers() == self.helpers() == []

    def _descendants(self, word: str) -> list[int]:
        """Return the ids of the processes with its environment and this word in their command lines."""
        found, own = [], f"PORT_OF_DEV={self.port}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                if word.encode() in command.split(b"\0") and own in environment.split(b"\0"):
                    found.append(int(entry.name))
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put(None)
