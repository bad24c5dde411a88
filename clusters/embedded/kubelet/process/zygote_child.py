"""The other side of the zygote's fork: from a copy of the zygote to a process of its own."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from clusters.base.identity import identify
from clusters.net.sockets import listen_environment

SIGNALS_TO_RESET: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FIRST_INHERITED_FD: Final = 3  # behind stdin, stdout and stderr
SETUP_FAILED: Final = 128  # exit code; what container runtimes report for a process that they could not start


@dataclass(frozen=True, slots=True)
class Spawn:
    """What the child is to become.

    `entry` is "module:function", called with `argv`, its result is the exit code. `limits`: `resource.RLIMIT_*` →
    (soft, hard). `record`: a file that gets pid and start time, and the words of `mark`, before `entry` runs.
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
        """As sent to the zygote."""
        return {
            "op": "spawn", "entry": self.entry, "argv": self.argv, "env": dict(self.env),
            "cwd": self.cwd, "log": self.log,
            "limits": {str(limit): values for limit, values in self.limits.items()},
            "record": self.record, "mark": dict(self.mark),
        }  # fmt: skip

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Spawn:
        """The inverse. Raises KeyError, TypeError or ValueError."""
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


def run_child(spawn: Spawn, report: int, listeners: Sequence[int]) -> NoReturn:
    """Become the process, which inherits the sockets `listeners`.

    What prevents it goes to the pipe `report`, which is closed when all is well.
    """
    try:
        _become(spawn, report, listeners)
    except BaseException as error:  # the copy of the zygote must not go on as one
        os.write(report, f"{type(error).__name__}: {error}".encode())
        os._exit(SETUP_FAILED)
    os.close(report)
    os._exit(_call(spawn))


def _become(spawn: Spawn, report: int, listeners: Sequence[int]) -> None:
    os.setsid()
    _reset_signals()
    _redirect(spawn.log)
    _close_all_but(report, *listeners)
    os.chdir(spawn.cwd)
    for limit, values in spawn.limits.items():
        resource.setrlimit(limit, values)
    _replace_environment({**spawn.env, **listen_environment(listeners)})
    _reseed()
    _write_record(spawn)


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


def _replace_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    tempfile.tempdir = None  # worked out again from TMPDIR


def _reseed() -> None:
    """Siblings must not draw the same numbers: NumPy's old global generator does not notice a fork."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _write_record(spawn: Spawn) -> None:
    identity = identify(os.getpid())
    if identity is None:
        raise ProcessLookupError("/proc does not know this process")
    record = identity.to_json() | dict(spawn.mark)
    fresh = Path(f"{spawn.record}.new")
    fresh.write_text(json.dumps(record))
    fresh.replace(spawn.record)


def _call(spawn: Spawn) -> int:
    """Run the entry as the interpreter runs a program: exceptions and `sys.exit` become exit codes."""
    sys.argv = [spawn.entry, *spawn.argv]
    gc.enable()
    try:
        return _exit_code(_resolve(spawn.entry)(list(spawn.argv)))
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _resolve(entry: str) -> Callable[[list[str]], Any]:
    module, _, function = entry.partition(":")
    resolved: Callable[[list[str]], Any] = getattr(importlib.import_module(module), function)
    return resolved


def _exit_code(result: Any) -> int:
    if result is None:
        return 0
    if isinstance(result, int):
        return result & 0xFF
    print(result, file=sys.stderr)
    return 1
