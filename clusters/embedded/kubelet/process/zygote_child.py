"""The child of a zygote's fork: turn the copy of the zygote into a container's process."""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from clusters.base.identity import identify
from clusters.net.sockets import listen_environment

SIGNALS_TO_RESET: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FIRST_INHERITED_FD: Final = 3  # after stdin, stdout and stderr
SETUP_FAILED: Final = 128  # exit code that container runtimes report for a process that they cannot start


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """The process that a zygote forks.

    `entry` is a function, as "module:function", that gets `argv` and returns the exit code.
    `limits` maps `resource.RLIMIT_*` to (soft, hard).
    `record` is a file that gets the process's identity and the fields of `mark` before `entry` runs.
    """

    entry: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log: str
    limits: Mapping[int, tuple[int, int]]
    record: str
    mark: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the request as a JSON object."""
        return {
            "op": "spawn", "entry": self.entry, "argv": self.argv, "env": dict(self.env),
            "cwd": self.cwd, "log": self.log,
            "limits": {str(limit): values for limit, values in self.limits.items()},
            "record": self.record, "mark": dict(self.mark),
        }  # fmt: skip

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> SpawnRequest:
        """Return the request of a JSON object. Raises KeyError, TypeError or ValueError."""
        return cls(
            entry=str(message["entry"]),
            argv=tuple(map(str, message["argv"])),
            env={str(name): str(value) for name, value in message["env"].items()},
            cwd=str(message["cwd"]),
            log=str(message["log"]),
            limits={int(limit): (int(soft), int(hard)) for limit, (soft, hard) in message["limits"].items()},
            record=str(message["record"]),
            mark=dict(message["mark"]),
        )


def run_child(request: SpawnRequest, report: int, listeners: Sequence[int]) -> NoReturn:
    """Set up the process, call its entry and exit. It inherits the sockets `listeners`.

    An error of the set-up is written to the pipe `report`. On success the pipe is closed without a message.
    """
    try:
        _set_up(request, report, listeners)
    except BaseException as error:  # the copy must not continue as a zygote
        os.write(report, f"{type(error).__name__}: {error}".encode())
        os._exit(SETUP_FAILED)
    os.close(report)
    os._exit(_call(request))


def _set_up(request: SpawnRequest, report: int, listeners: Sequence[int]) -> None:
    os.setsid()
    _reset_signals()
    _redirect(request.log)
    _close_all_but(report, *listeners)
    os.chdir(request.cwd)
    for limit, values in request.limits.items():
        resource.setrlimit(limit, values)
    os.environ.clear()
    os.environ.update({**request.env, **listen_environment(listeners)})
    time.tzset()
    tempfile.tempdir = None  # a cached value of the zygote's TMPDIR
    _reseed()
    _write_record(request)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in SIGNALS_TO_RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _close_all_but(*kept: int) -> None:
    last = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
    first = FIRST_INHERITED_FD
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, last + 1)


def _reseed() -> None:
    """Reseed random generators, so that forks of one zygote draw different numbers.

    NumPy's legacy global generator does not detect a fork.
    """
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _write_record(request: SpawnRequest) -> None:
    identity = identify(os.getpid())
    if identity is None:
        raise ProcessLookupError("this process is not in /proc")
    record = identity.to_json() | dict(request.mark)
    fresh = Path(f"{request.record}.new")
    fresh.write_text(json.dumps(record))
    fresh.replace(request.record)


def _call(request: SpawnRequest) -> int:
    """Call the entry and return the exit code, as the interpreter does for a program."""
    sys.argv = [request.entry, *request.argv]
    gc.enable()
    try:
        module, _, function = request.entry.partition(":")
        return _exit_code(getattr(importlib.import_module(module), function)(list(request.argv)))
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _exit_code(result: Any) -> int:
    if result is None:
        return 0
    if isinstance(result, int):
        return result & 0xFF
    print(result, file=sys.stderr)
    return 1
