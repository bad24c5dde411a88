"""The log of this process on stderr and stdout. A reader that stalls costs lines of the log, and delays no request."""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import sys
import traceback
from typing import Final, TextIO

MOST_LINES: Final = 200  # of one traceback
LONGEST_LINE: Final = 1000  # characters of a line of a traceback
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def log_to_stderr() -> None:
    """Log from INFO on, to where stderr leads now."""
    number = _stderr_number()
    handler = logging.StreamHandler(sys.stderr) if number is None else UnwaitingHandler(number)
    logging.basicConfig(format=FORMAT, level=logging.INFO, handlers=[handler], force=True)


def flush_each_line() -> None:
    """Write what a model prints at the end of each line: a file or a pipe would get it after 8 KiB only."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes for the log: indented lines, bounded, without control characters.

    A message may quote a caller: indented, none of its lines can pass for a record of the log.
    """
    lines = "".join(traceback.TracebackException.from_exception(error, compact=True).format()).splitlines()
    shown = [line if line.isprintable() else ascii(line)[1:-1] for line in lines if line.strip()]
    if len(shown) > MOST_LINES:
        half = MOST_LINES // 2
        shown = [*shown[:half], f"… {len(shown) - MOST_LINES} lines …", *shown[-half:]]
    return "\n".join(f"    {line[:LONGEST_LINE]}" for line in shown)


def own_stderr() -> TextIO:
    """A stream to stderr for a thread of its own: a write that waits has no lock that somebody else could want."""
    number = _stderr_number()
    return sys.stderr if number is None else open(number, "w", encoding="utf-8", closefd=False)


def _stderr_number() -> int | None:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):  # somebody collects what is written in memory
        return None


def _reopened(number: int) -> int | None:
    """The same pipe by a description of our own that never waits, others write to theirs; None for what is none."""
    try:
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return None
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


class UnwaitingHandler(logging.Handler):
    """Writes to a file descriptor what that takes at once, and says later how many records it did not take."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._own = _reopened(number)
        self._number = number if self._own is None else self._own
        self._ready = select.poll()
        self._ready.register(self._number, select.POLLOUT)
        self._lost = 0

    def close(self) -> None:
        """Let go of the descriptor of its own."""
        super().close()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, or count it."""
        try:
            lines = f"{self.format(record)}\n"
        except Exception:  # its words do not fit its arguments
            self.handleError(record)
            return
        told = f"{self._lost} lines of this log are lost: nobody read it\n" if self._lost else ""
        self._lost = 0 if self._written(f"{told}{lines}".encode(errors="backslashreplace")) else self._lost + 1

    def _written(self, content: bytes) -> bool:
        """Whether all of it went, in pieces that a pipe with any room takes whole (pipe(7))."""
        for start in range(0, len(content), select.PIPE_BUF):
            if not self._takes(content[start : start + select.PIPE_BUF]):
                return False
        return True

    def _takes(self, piece: bytes) -> bool:
        try:
            return bool(self._ready.poll(0)) and os.write(self._number, piece) == len(piece)
        except OSError:  # nobody reads it any more, or its disk is full
            return False
