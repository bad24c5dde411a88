"""Entry point of the process: parse options, bind sockets, start the fetch, and only then import heavy modules.

The sockets are bound first, so that an early probe or request waits in the kernel until the event loop runs. Otherwise
its connection would be refused.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from clusters.base.errors import KnodelError
from clusters.base.process_setup import disable_core_dumps
from clusters.base.redact import one_line
from clusters.gateway.token import VARIABLE
from clusters.net.sockets import LISTEN_FDS
from serving.modelserver.base.assignment import Assignment
from serving.modelserver.base.errors import BadOptions, CannotListen
from serving.modelserver.base.logs import flush_each_line, log_to_stderr
from serving.modelserver.base.options import Pool, ServerOptions, parse_options, termination_log
from serving.modelserver.base.stats import DownloadProgress, StartupTimes
from serving.modelserver.connections.sockets import Sockets, bind_or_inherit
from serving.modelserver.pool.assignment_file import AssignmentFile
from serving.storage.fetch import fetch

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

FAILED: Final = 1
WRONG_USAGE: Final = 2
MAX_REASON_LENGTH: Final = 1024  # characters; Kubernetes keeps 4096 bytes of a termination message
_START_TICKS: Final = 19  # field of /proc/self/stat behind the command's name
LIBRARY_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that NumPy reads at its import. Engines have options of their own."""


def main(argv: Sequence[str]) -> int:
    """Serve until a signal; return the exit code: 0 after a signal, 1 when serving failed, 2 for invalid options."""
    log_to_stderr()
    try:
        serve(argv, os.environ)
    except BadOptions as error:
        return _failed(str(error), WRONG_USAGE)
    except KnodelError as error:
        return _failed(str(error), FAILED)
    except Exception as error:  # a library may raise any error for a malicious model
        log.exception("the server failed")
        return _failed(f"the server failed: {type(error).__name__}; its log has the details", FAILED)
    return 0


def serve(argv: Sequence[str], environ: Mapping[str, str], on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal. `on_ready` is called once, when every port answers and the model is loaded.

    Raises BadOptions for invalid arguments or variables, CannotListen, and KnodelError when the model cannot be served.
    """
    disable_core_dumps()
    options = parse_options(argv, environ)
    if options.pool is not None:  # a pool member keeps its assignment when its container restarts
        options = replace(options, assignment=AssignmentFile(options.scratch, options.bounds).read())
    os.environ.pop(VARIABLE, None)  # hide the token from the model's code and child processes
    if options.group.rank and options.assignment is not None:
        log_to_stderr()
        flush_each_line()
        _limit_threads(options)
        gc.enable()
        _work(options, options.assignment)
        return
    sockets = _bind(options)
    log_to_stderr()
    flush_each_line()
    startup = StartupTimes()
    artifact = None if options.assignment is None else _start_fetch(options, options.assignment, startup.download)
    _limit_threads(options)
    if options.pool is not None and options.assignment is None:
        _import_for_pool(options.pool)
    from serving.modelserver.run import run

    gc.freeze()  # imported objects stay alive, so collections skip them from now on
    gc.enable()
    if options.pool is None or options.assignment is not None:  # no request waits for a free pool member's imports
        startup.imports = _milliseconds_since_start()
    run(options, sockets, artifact, startup, on_ready)


def _limit_threads(options: ServerOptions) -> None:
    """Limit the threads of libraries that this process and its children import later."""
    for name in LIBRARY_THREADS:
        os.environ.setdefault(name, str(options.bounds.threads))


def _work(options: ServerOptions, model: Assignment) -> None:
    """Compute for the leader of this replica. Raises StorageError, EngineError."""
    from serving.modelserver.execution.adapters import fetch_adapters
    from serving.modelserver.execution.loading import make_engine_options
    from serving.modelserver.worker import work

    def fetched(uri: str, digest: str) -> Artifact:
        return fetch(uri, digest, options.cache, options.allow_hosts)

    with ExitStack() as files:
        adapters = fetch_adapters(model.llm.adapters, fetched, files)
        work(
            model.format,
            cache(lambda: fetched(model.storage_uri, model.digest)),  # its files stay while the worker works
            make_engine_options(options, model, adapters),
            (options.group.leader, options.management_port),
        )


def _import_for_pool(pool: Pool) -> None:
    """Import all modules that a claim needs. Raises UnknownFormat, MissingEngine."""
    from serving.engines.base.registry import find_format, find_loader
    from serving.modelserver.pool.preloading import modules_for

    find_loader(find_format(pool.format, ()))
    for name in modules_for(("--pool", "--format", pool.format)):
        importlib.import_module(name)


def _bind(options: ServerOptions) -> Sockets:
    inherited = os.environ.pop(LISTEN_FDS, "")  # child processes inherit no sockets
    data = bind_or_inherit(inherited, options.host, options.port, "PORT")
    try:
        return Sockets(data, bind_or_inherit(inherited, options.host, options.management_port, "MANAGEMENT_PORT"))
    except CannotListen:
        data.close()
        raise


def _start_fetch(options: ServerOptions, model: Assignment, progress: DownloadProgress) -> Callable[[], Artifact]:
    """Fetch the artifact in a thread, in parallel with the imports; return a function that waits for it."""
    future: Future[Artifact] = Future()

    def work() -> None:
        try:
            files = fetch(model.storage_uri, model.digest, options.cache, options.allow_hosts, progress=progress)
            future.set_result(files)
        except BaseException as error:  # raised by the returned function
            future.set_exception(error)

    threading.Thread(target=work, name="fetch", daemon=True).start()
    return future.result


def _failed(reason: str, code: int) -> int:
    """Write the reason to the log and the container's termination message, and return the exit code."""
    line = one_line(reason, MAX_REASON_LENGTH)
    log.error("%s", line)
    place = termination_log(os.environ)
    if place is not None:
        try:
            place.write_text(line + "\n", encoding="utf-8")
        except OSError as error:
            log.warning("cannot write the termination message: %s", error.strerror)
    return code


def _milliseconds_since_start() -> float:
    """Return the age of this process since fork or exec, accurate to a clock tick (10 ms); 0 except on Linux."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        started = int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, (time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000)
    except (OSError, IndexError, ValueError):  # not Linux
        return 0.0
