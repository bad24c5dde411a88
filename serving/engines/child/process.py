"""The process of a model as its server has it: asked one thing after the other, killed when it does not end."""

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
_ENDING: Final = 1.0  # s between the end of a process's socket and its own
_STDERR: Final = 2  # the descriptor, whatever Python has put in its place


class ChildGone(EngineError):
    """The process ended, or makes no sense; `str` says how. Never leaves the engine."""


class ChildProcess:
    """Python, with one socket to this process; what it prints goes to this process's stderr.

    Its libraries use `threads` threads, unless the environment says how many. Its stdin is a pipe that nothing is
    written to: the process ends with this one.
    """

    def __init__(self, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())],  # nothing of the folder that it starts in
                pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=_STDERR,
                env={**dict.fromkeys(_THREADS, str(threads)), **os.environ},
            )  # fmt: skip
        self._channel = Channel(ours)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone already."""
        return self._process.poll() is not None

    def ask(self, message: Message, tensors: Sequence[Tensor] = ()) -> tuple[Message, list[Tensor]]:
        """What it answers; blocks. Raises ChildGone: then it has ended."""
        try:
            self._channel.send(message, tensors)
            return self._channel.receive()
        except (ValueError, msgspec.MsgspecError) as error:
            self.close()
            raise ChildGone("because what it said made no sense") from error
        except (OSError, EOFError) as error:
            raise ChildGone(self._ended()) from error

    def kill(self) -> None:
        """End it at once; who waits for an answer gets ChildGone."""
        self._process.kill()

    def close(self) -> None:
        """End it."""
        self._channel.close()
        self._process.kill()
        self._process.communicate()  # closes the pipe, and waits

    def _ended(self) -> str:
        try:
            code = self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            return "without a word"
        finally:
            self.close()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


class Patience:
    """Kills the process when what it was asked goes on for `seconds` after `begin`."""

    def __init__(self, child: ChildProcess, seconds: float) -> None:
        self._child = child
        self._seconds = seconds
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._over = False

    def begin(self) -> None:
        """From now on."""
        with self._lock:
            if not self._over:
                self._timer = threading.Timer(self._seconds, self._lose)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        """It has answered."""
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()

    def _lose(self) -> None:
        with self._lock:
            if not self._over:
                self._child.kill()
