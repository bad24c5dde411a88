"""The log of this process on stderr and stdout. It drops lines while a reader stalls: requests never wait."""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import sys
import traceback
from typing import Final, TextIO

MAX_LINES: Final = 200  # of one traceback
MAX_LINE_LENGTH: Final = 1000  # characters of a line of a traceback
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def log_to_stderr() -> None:
    """Log records of level INFO and above to the current stderr."""
    number = _stderr_number()
    handler = logging.StreamHandler(sys.stderr) if number is None else UnwaitingHandler(number)
    logging.basicConfig(format=FORMAT, level=logging.INFO, handlers=[handler], force=True)


def flush_each_line() -> None:
    """Flush the output of a model after each line; Python buffers 8 KiB for files and pipes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes for the log.

    Lines and their number are bounded, and control characters are escaped. All lines are indented, so that text of a
    caller in a message cannot look like a record of the log.
    """
    lines = "".join(traceback.TracebackException.from_exception(error, compact=True).format()).splitlines()
    shown = [line if line.isprintable() else ascii(line)[1:-1] for line in lines if line.strip()]
    if len(shown) > MAX_LINES:
        half = MAX_LINES // 2
        shown = [*shown[:half], f"… {len(shown) - MAX_LINES} lines …", *shown[-half:]]
    return "\n".join(f"    {line[:MAX_LINE_LENGTH]}" for line in shown)


def own_stderr() -> TextIO:
    """Return a stream of its own to stderr: a write that blocks holds no lock that other threads need."""
    number = _stderr_number()
    return sys.stderr if number is None else open(number, "w", encoding="utf-8", closefd=False)


def _stderr_number() -> int | None:
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):  # stderr is replaced, as by a test that captures it
        return None


def _reopened(number: int) -> int | None:
    """Return a new, non-blocking file description of the pipe `number`; None for other files.

    O_NONBLOCK belongs to the file description: to set it on the existing one would affect other processes, too.
    """
    try:
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            return None
        return os.open(f"/proc/self/fd/{number}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


class UnwaitingHandler(logging.Handler):
    """Writes records to a file descriptor without blocking, and later reports how many records it had to drop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._own = _reopened(number)
        self._number = number if self._own is None else self._own
        self._ready = select.poll()
        self._ready.register(self._number, select.POLLOUT)
        self._lost = 0

    def close(self) -> None:
        """Close the file descriptor that this handler opened."""
        super().close()
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it as lost."""
        try:
            lines = f"{self.format(record)}\n"
        except Exception:  # its arguments do not match its format
            self.handleError(record)
            return
        lost = f"{self._lost} lines of this log were dropped: its reader was too slow\n" if self._lost else ""
        self._lost = 0 if self._written(f"{lost}{lines}".encode(errors="backslashreplace")) else self._lost + 1

    def _written(self, content: bytes) -> bool:
        """Return whether all of it was written, in pieces that a writable pipe takes whole (pipe(7))."""
        try:
            for start in range(0, len(content), select.PIPE_BUF):
                piece = content[start : start + select.PIPE_BUF]
                if not self._ready.poll(0) or os.write(self._number, piece) != len(piece):
                    return False
        except OSError:  # the reader closed it, or the disk is full
            return False
        return True
