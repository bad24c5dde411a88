"""Run a command on a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SEQUENCE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
REDRAW = re.compile(r"\x1b\[\d+F\x1b\[J")
KNODEL = [sys.executable, "-m", "serving.cli.main"]


@dataclass(frozen=True)
class Shown:
    """What a command wrote to its terminal."""

    code: int
    raw: str

    @property
    def frames(self) -> list[list[str]]:
        """The lines of each text that was drawn in place of the one before, without colours."""
        return [Shown(self.code, frame).lines for frame in REDRAW.split(self.raw)]

    @property
    def lines(self) -> list[str]:
        """Lines without colours."""
        return SEQUENCE.sub("", self.raw).replace("\r\n", "\n").splitlines()


def run_on_terminal(*arguments: str, columns: int = 80, timeout: float = 60.0, **environment: str) -> Shown:
    """Run `knodel` with stdout and stderr on a terminal of this width; returns what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [*KNODEL, *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        content = _read_to_end(ours)
        code = process.wait(timeout)
    os.close(ours)
    return Shown(code, content.decode())


def _read_to_end(file: int) -> bytes:
    content = b""
    while True:
        try:
            more = os.read(file, 65536)
        except OSError:  # Linux's end of a terminal that nobody has open any more
            return content
        if not more:
            return content
        content += more


class Running:
    """A command that runs; `raw` is what it has written to stdout and stderr so far."""

    def __init__(self, process: subprocess.Popen[bytes], file: int) -> None:
        self._process = process
        self._file = file
        self.raw = ""

    def until(self, text: str, timeout: float = 30.0, *, after: str = "") -> str:
        """Read until the command has written `text`, behind the text `after`; return all that it has written."""
        deadline = time.monotonic() + timeout
        while text not in self.raw.partition(after)[2] if after else text not in self.raw:
            ready, _, _ = select.select([self._file], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} is not in {self.raw!r}"
            try:
                more = os.read(self._file, 65536)
            except OSError:  # the end of a terminal
                more = b""
            assert more, f"the command has ended without {text!r}: {self.raw!r}"
            self.raw += more.decode()
        return self.raw

    def type(self, text: str) -> None:
        r"""Type a text on the terminal: `\n` is Enter, `\x04` Ctrl-D."""
        os.write(self._file, text.encode())

    def press_ctrl_c(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def interrupt(self) -> Shown:
        """Send SIGINT, as Ctrl-C does, and wait for the end."""
        self.press_ctrl_c()
        return self.end()

    def end(self) -> Shown:
        """Wait for the end."""
        self.raw += _read_to_end(self._file).decode()
        return Shown(self._process.wait(30.0), self.raw)


@contextmanager
def running(
    *arguments: str, tty: bool, typed: bool = False, columns: int = 80, rows: int = 24, **environment: str
) -> Iterator[Running]:
    """Run `knodel` on a terminal of this size, or with a pipe, until the block ends; if `typed`, with a keyboard."""
    ours, theirs = pty.openpty() if tty else os.pipe()
    if tty:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [*KNODEL, *arguments], stdin=theirs if typed else subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**inherited, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Running(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
