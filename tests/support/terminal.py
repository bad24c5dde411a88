"""Run a command on a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

SEQUENCE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
KNODEL = [sys.executable, "-m", "serving.cli.main"]


@dataclass(frozen=True)
class Shown:
    """What a command wrote to its terminal."""

    code: int
    raw: str

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
