"""Run a program that does not end with its standard input, so that it ends with ours.

    python -P -m serving.engines.upstream.guard PROGRAM ARGUMENT…

The program gets no standard input. It and its children are in the process group of this process, which must lead it.
When our standard input is closed, the whole group is killed: then the server has ended, also after kill -9. When this
process is killed, the kernel kills the program (Linux). Our exit code, or signal, is that of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

NOT_FOUND: Final = 127  # exit code of shells for a program that cannot be started
_FAILED: Final = 1
_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of prctl(2)


def main(argv: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    guard = os.getpid()
    child = os.fork()
    if not child:
        _become(argv, guard)
    threading.Thread(target=_watch_input, daemon=True).start()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(guard, -code)
    return code


def _become(argv: Sequence[str], guard: int) -> None:
    """Turn this child process into the program; never returns."""
    try:
        _die_with_parent()
        if os.getppid() != guard:  # it died before
            os._exit(_FAILED)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvp(argv[0], list(argv))
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(NOT_FOUND)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _watch_input() -> None:
    """Kill the group, and so this process, when the standard input ends."""
    while os.read(0, 1 << 12):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
