"""Run a program that does not end with its standard input, so that it ends with ours.

    python -P -m serving.engines.upstream.guard PROGRAM ARGUMENT…

The program gets no standard input. It and its children are in the session of this process, which must lead it. All of
them end when our standard input is closed: then the server has ended, also after kill -9. It gets SIGTERM
first, so that shared memory is released. When this process is killed, the kernel kills the program (Linux). Our exit
code, or signal, is that of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from serving.engines.upstream.session import signal_session

GRACE: Final = 4.0  # s from SIGTERM to SIGKILL
NOT_FOUND: Final = 127  # exit code of shells for a program that cannot be started
_OTHERS: Final = 2.0  # s for the program's children to end after it, before they are killed
_KILLED: Final = 1.0  # s for those that are killed
_POLL: Final = 0.01  # s
_FAILED: Final = 1
_PARENT_DEATH_SIGNAL, _SUBREAPER = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of prctl(2)


def main(argv: Sequence[str]) -> int:
    """Run the program; return its exit code."""
    guard = os.getpid()
    _prctl(_SUBREAPER, 1)  # children that the program leaves become ours
    child = os.fork()
    if not child:
        _become(argv, guard)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the whole session, which may get it
    threading.Thread(target=_watch_input, daemon=True).start()
    _, status = os.waitpid(child, 0)
    _end_others()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(guard, -code)
    return code


def _become(argv: Sequence[str], guard: int) -> None:
    """Turn this child process into the program; never returns."""
    try:
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # it died before
            os._exit(_FAILED)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvp(argv[0], list(argv))  # noqa: S606 - a program and its arguments, no shell
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(NOT_FOUND)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _watch_input() -> None:
    """End the session, and so this process, when the standard input ends."""
    while os.read(0, 1 << 12):
        pass
    signal_session(os.getsid(0), signal.SIGTERM)
    time.sleep(GRACE)  # the main thread ends this process as soon as the others have ended
    signal_session(os.getsid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _end_others() -> None:
    """End what the program has left, and wait for it."""
    with contextlib.suppress(ChildProcessError):  # there are no more
        for number, seconds in ((signal.SIGTERM, _OTHERS), (signal.SIGKILL, _KILLED)):
            signal_session(os.getsid(0), number)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(_POLL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
