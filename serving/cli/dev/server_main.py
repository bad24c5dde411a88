"""A server process of `knodel dev`: import the engine, wait for the model to load, serve it, and report how that went.

python -P -m serving.cli.dev.server_main CHANNEL LIFELINE FORMAT URI

CHANNEL is the descriptor of a socket for `messages`, LIFELINE that of a pipe which `knodel dev` never writes to. When
`knodel dev` ends, however it ends, the kernel ends this process group.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from types import FrameType
from typing import Final

from clusters.base.errors import KnodelError
from clusters.base.process_setup import end_with_pipe
from serving.cli.base.output import uses_colour
from serving.cli.dev.messages import Failure, Load, Loaded, Report, Waiting, decode_order, encode
from serving.cli.dev.texts import failure_lines
from serving.modelserver.main import LIBRARY_THREADS, serve

MAX_LINES: Final = 60  # of a traceback
OOM_FIRST: Final = 1000
"""The value of oom_score_adj that makes the kernel kill a process first when the machine runs out of memory."""
_ADJUSTMENT: Final = Path("/proc/self/oom_score_adj")
_OWN: Final = tuple(str(Path(__file__).parents[3] / name) + os.sep for name in ("serving", "clusters"))


def main(arguments: Sequence[str]) -> None:
    """Run until the server ends. Every failure to load is reported over the channel."""
    channel, lifeline, model_format, uri = arguments
    end_with_pipe(int(lifeline), group=True)
    with socket.socket(fileno=int(channel)) as to_dev:
        to_dev.set_inheritable(False)
        former = _oom_score(OOM_FIRST)  # neither the serving version nor `knodel dev` is to be killed for a new one
        _import_engine(model_format, uri)
        before = frozenset(sys.modules)
        load: Load | None = None
        for line in to_dev.makefile("rb"):  # ends when `knodel dev` needs this process no more
            order = decode_order(line)
            if isinstance(order, Load):
                load = order
                break
            _import_early(order.modules)
            _send(to_dev, Waiting())
        if load is None:
            return
        watchdog = threading.Timer(load.timeout, _report_hang, [to_dev, load.timeout, threading.get_ident()])
        watchdog.daemon = True
        watchdog.start()

        def report_loaded() -> None:
            watchdog.cancel()
            _oom_score(former)
            _format_log()
            _send(to_dev, Loaded(installed_modules(before)))

        _serve(load, to_dev, report_loaded)


def _serve(load: Load, to_dev: socket.socket, on_ready: Callable[[], None]) -> None:
    for package in ("serving", "clusters"):
        logging.getLogger(package).setLevel(logging.WARNING)
    try:
        serve(load.argv, {**os.environ, **load.environ}, on_ready)
    except KnodelError as error:
        _send(to_dev, Failure(str(error), user_traceback(error)))
    except Exception as error:
        _send(to_dev, Failure(f"{type(error).__name__}: {error}", user_traceback(error)))


def user_traceback(error: BaseException) -> list[str]:
    """Return the traceback of the user's error behind `error`, without our own frames; empty if only ours failed.

    The last error of the chain of causes that is not a KnodelError counts.
    """
    cause: BaseException | None = error
    while isinstance(cause, KnodelError):
        cause = cause.__cause__
    if cause is None:
        return []
    shown = traceback.TracebackException.from_exception(cause, compact=True)
    linked: traceback.TracebackException | None = shown
    while linked is not None:
        linked.stack = traceback.StackSummary.from_list([one for one in linked.stack if not _is_own(one.filename)])
        linked = linked.__cause__ or linked.__context__
    if not shown.stack and not isinstance(cause, SyntaxError):
        return []
    lines = "".join(shown.format()).splitlines()
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES // 2], f"  … {len(lines) - MAX_LINES} lines …", *lines[-MAX_LINES // 2 :]]
    return lines


def installed_modules(before: Set[str]) -> list[str]:
    """Return the modules that were loaded since `before`, in order, of packages in Python's site-packages."""
    sites = tuple(sysconfig.get_paths()[name] + os.sep for name in ("purelib", "platlib"))
    added = ((name, module) for name, module in sys.modules.copy().items() if name not in before)
    return [name for name, module in added if (getattr(module, "__file__", None) or "").startswith(sites)]


def _import_engine(model_format: str, uri: str) -> None:
    from serving.modelserver.pool.preloading import modules_for

    for name in LIBRARY_THREADS:
        os.environ.setdefault(name, "1")
    _import_early(modules_for(("--format", model_format, "--storage-uri", uri)))


def _import_early(modules: Iterable[str]) -> None:
    """Import what a load needs. What cannot be imported is reported when the model is loaded."""
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def _report_hang(to_dev: socket.socket, seconds: float, thread: int) -> None:
    """Report what the user's code is doing in the thread that has run it, or else in any other one."""
    frames = sys._current_frames()
    stacks = [_lines_of(frame) for number, frame in frames.items() if number not in (thread, threading.get_ident())]
    stack = next((lines for lines in stacks if lines), [])
    reason = f"it was not loaded within {seconds:g} s: see the line at which its code waits, or raise --load-timeout"
    _send(to_dev, Failure(reason, ["Still running (most recent call last):", *stack] if stack else []))


def _lines_of(frame: FrameType) -> list[str]:
    """Return the lines of the frames that the user's code called, and of those; empty for a thread of the server."""
    stack = traceback.extract_stack(frame)
    ours = [index for index, one in enumerate(stack) if one.filename.startswith(_OWN)]
    inside = stack[ours[-1] + 1 :] if ours else []
    users = [one for one in inside if not _is_own(one.filename)]
    return "".join(traceback.StackSummary.from_list(users).format()).splitlines()


def _is_own(file: str) -> bool:
    return file.startswith((*_OWN, "<frozen importlib"))


def _send(to_dev: socket.socket, report: Report) -> None:
    with contextlib.suppress(OSError):  # `knodel dev` has ended
        to_dev.sendall(encode(report))


def _oom_score(value: int) -> int:
    """Set this process's oom_score_adj, and return the former one; not on macOS."""
    try:
        former = int(_ADJUSTMENT.read_text())
        _ADJUSTMENT.write_text(str(value))
    except (OSError, ValueError):
        return 0
    return former


class DevFormatter(logging.Formatter):
    """Format a record without time and module, and with the user's part of the traceback of the error in progress."""

    def __init__(self, *, coloured: bool) -> None:
        super().__init__("%(levelname)s %(message)s")
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        text, error = super().format(record), sys.exc_info()[1]  # the server logs an error while it handles it
        if error is None or not record.name.startswith("serving."):
            return text
        lines = user_traceback(error)
        if not lines and not isinstance(error, KnodelError):
            return text  # a bug of ours
        return "\n".join([text.partition("\n")[0], *failure_lines(Failure("", lines), coloured=self._coloured)])


def _format_log() -> None:
    for handler in logging.getLogger().handlers:
        handler.setFormatter(DevFormatter(coloured=uses_colour(sys.stderr)))


if __name__ == "__main__":
    main(sys.argv[1:])
