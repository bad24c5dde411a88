"""Read single keys from the terminal while a view is redrawn."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Final

from serving.cli.base.output import is_terminal

_MOST: Final = 64  # bytes of one read; an escape sequence has less


class Keys:
    """Keys that were pressed; without a keyboard, `wait` only waits."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def wait(self, seconds: float, wanted: str) -> str:
        """Return the first of the `wanted` keys that is pressed within `seconds`, else an empty string."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._file is None:
                time.sleep(left)
                return ""
            ready, _, _ = select.select([self._file], [], [], left)
            if not ready:
                return ""
            pressed = os.read(self._file, _MOST).decode("latin-1")
            if not pressed:  # the end of the input
                self._file = None
            elif found := next((key for key in pressed if key in wanted), ""):
                return found


@contextlib.contextmanager
def keyboard(is_live: bool) -> Iterator[Keys]:
    """Yield the keys of stdin, without echo and without Enter, and restore the terminal afterwards.

    There are none on Windows, if the view is not `is_live`, if stdin is not a terminal, or if the command runs in the
    background: a change of the terminal would stop it there.
    """
    if sys.platform != "win32":
        import termios
        import tty

        if is_live and is_terminal(sys.stdin) and _in_foreground(file := sys.stdin.fileno()):
            before = termios.tcgetattr(file)
            try:
                tty.setcbreak(file)  # Ctrl-C still sends SIGINT
                yield Keys(file)
            finally:
                termios.tcsetattr(file, termios.TCSADRAIN, before)
            return
    yield Keys(None)


def _in_foreground(file: int) -> bool:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # a terminal that does not control this process
            return os.tcgetpgrp(file) == os.getpgrp()
    return True
