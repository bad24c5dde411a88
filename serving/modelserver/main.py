"""Entry of the process: options, sockets, the artifact on its way, and only then the heavy imports.

The sockets are bound first: a probe or request that comes early waits in the kernel and is answered as soon as there is
a loop, instead of being refused and sent again.
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
LONGEST_REASON: Final = 1024  # characters; Kubernetes keeps 4096 bytes of a termination message
_START_TICKS: Final = 19  # field of /proc/self/stat behind the command's name
_LIBRARY_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(argv: Sequence[str]) -> int:
    """Serve until a signal stops it; return the exit code: 0 stopped, 1 cannot serve, 2 wrong options."""
    log_to_stderr()
    try:
        serve(argv, os.environ)
    except BadOptions as error:
        return _failed(str(error), WRONG_USAGE)
    except KnodelError as error:
        return _failed(str(error), FAILED)
    except Exception as error:  # whatever a library makes of a hostile model
        log.exception("the server failed")
        return _failed(f"the server failed: {type(error).__name__}; its log has the details", FAILED)
    return 0


def serve(argv: Sequence[str], environ: Mapping[str, str], on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal stops it. `on_ready` is called once, when every port answers and the model is loaded.

    Raises BadOptions for wrong arguments or variables, CannotListen, and KnodelError for a model that cannot be served.
    """
    disable_core_dumps()
    options = _remembering(parse_options(argv, environ))
    os.environ.pop(VARIABLE, None)  # no model's code and no child process reads it
    sockets = _bind(options)
    log_to_stderr()
    flush_each_line()
    startup = StartupTimes()
    artifact = None if options.assignment is None else _fetching(options, options.assignment, startup.download)
    for name in _LIBRARY_THREADS:  # NumPy's own; engines have theirs. Read when the libraries are imported
        os.environ.setdefault(name, str(options.bounds.threads))
    if options.pool is not None and options.assignment is None:
        _import_all(options.pool)
    from serving.modelserver.run import run

    gc.freeze()  # what was imported stays: collections from now on need not look at it
    gc.enable()
    if options.pool is None or options.assignment is not None:  # a free pool member's imports took nobody's time
        startup.imports = _milliseconds_since_start()
    run(options, sockets, artifact, startup, on_ready)


def _remembering(options: ServerOptions) -> ServerOptions:
    """With what a pool member was told before its container was restarted. Raises BadAssignment."""
    if options.pool is None:
        return options
    return replace(options, assignment=AssignmentFile(options.scratch, options.bounds).read())


def _import_all(pool: Pool) -> None:
    """All that a claim needs. Raises UnknownFormat, MissingEngine."""
    from serving.engines.base.registry import find_format, loader_of
    from serving.modelserver.pool.preloading import modules_for

    loader_of(find_format(pool.format, ()))
    for name in modules_for(("--pool", "--format", pool.format)):
        importlib.import_module(name)


def _bind(options: ServerOptions) -> Sockets:
    inherited = os.environ.pop(LISTEN_FDS, "")  # what this process starts inherits no sockets
    data = bind_or_inherit(inherited, options.host, options.port, "PORT")
    try:
        return Sockets(data, bind_or_inherit(inherited, options.host, options.management_port, "MANAGEMENT_PORT"))
    except CannotListen:
        data.close()
        raise


def _fetching(options: ServerOptions, model: Assignment, progress: DownloadProgress) -> Callable[[], Artifact]:
    """Wait for the artifact, which is on its way: reading and hashing overlap with the imports."""
    future: Future[Artifact] = Future()

    def work() -> None:
        try:
            files = fetch(model.storage_uri, model.digest, options.cache, options.allow_hosts, progress=progress)
            future.set_result(files)
        except BaseException as error:  # goes to whoever waits for it
            future.set_exception(error)

    threading.Thread(target=work, name="fetch", daemon=True).start()
    return future.result


def _failed(reason: str, code: int) -> int:
    """Say why, in the log and where the platform reads it."""
    line = one_line(reason, LONGEST_REASON)
    log.error("%s", line)
    place = termination_log(os.environ)
    if place is not None:
        try:
            place.write_text(line + "\n", encoding="utf-8")
        except OSError as error:
            log.warning("the reason cannot be written to the termination log: %s", error.strerror)
    return code


def _milliseconds_since_start() -> float:
    """Since this process was forked or executed, to a clock tick (10 ms)."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        started = int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, (time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000)
    except (OSError, IndexError, ValueError):  # no Linux: not measured
        return 0.0
