"""Start the process of a model, send it one request after the other, and kill it when it hangs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

import msgspec

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import EngineError
from serving.engines.child.messages import Channel, Message

MODULE: Final = "serving.engines.child.main"
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # read when libraries are imported
_EXIT_TIMEOUT: Final = 1.0  # s for a process to end after its socket is closed
_STDERR: Final = 2  # the descriptor, in case `sys.stderr` was replaced


class ChildExited(EngineError):
    """The process has ended, or sent an invalid message; `str` is how. The engine handles this error itself."""


class ChildProcess:
    """A Python process with a socket to this one; its output goes to the stderr of this one.

    Its libraries use `threads` threads, unless the environment sets another number. Its stdin is a pipe that is never
    written to, so that it ends with this process (`serving.engines.child.main`).
    """

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())],  # no imports from the working directory
                pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=_STDERR,
                env={**dict.fromkeys(_THREADS, str(threads)), **os.environ},
            )  # fmt: skip
        self._channel = Channel(ours)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def request(self, message: Message, tensors: Sequence[Tensor] = ()) -> tuple[Message, list[Tensor]]:
        """Send a request and return the response; blocks. Raises ChildExited when the process has ended."""
        try:
            self._channel.send(message, tensors)
            return self._channel.receive()
        except (ValueError, msgspec.MsgspecError) as error:
            self.close()
            raise ChildExited("after an invalid message") from error
        except (OSError, EOFError) as error:
            raise ChildExited(self._exit_reason()) from error

    def kill(self) -> None:
        """Kill the process; a thread that waits for a response gets ChildExited."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and release its resources."""
        self._channel.close()
        self._process.kill()
        self._process.communicate()  # closes the pipe, and waits

    def _exit_reason(self) -> str:
        try:
            code = self._process.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "without an exit code"
        finally:
            self.close()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class KillTimer:
    """Kill the process when its request takes longer than `seconds` after `start`."""

    def __init__(self, child: ChildProcess, seconds: float) -> None:
        self._child = child
        self._seconds = seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the timer, unless the request has ended already."""
        with self._lock:
            if not self._stopped:
                self._timer = threading.Timer(self._seconds, self._kill)
                self._timer.daemon = True
                self._timer.start()

    def stop(self) -> None:
        """Stop the timer: the request has ended."""
        with self._lock:
            self._stopped = True
            if self._timer is not None:
                self._timer.cancel()

    def _kill(self) -> None:
        with self._lock:
            if not self._stopped:
                self._child.kill()
