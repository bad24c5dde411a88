"""The activator process: `python -m clusters.embedded.activator --fd N --control SOCKET --log FILE`.

The listening socket N comes from the control plane, which keeps it: requests wait in it while a successor starts, and
no other process can take its address. `KNODEL_GATEWAY_TOKEN` has the token of requests from the gateway. Exit codes: 0
after a drain, 1 when the control socket is in use, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import logging.handlers
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import uvloop

from clusters.base.clock import SystemClock
from clusters.embedded.activator.app import Activator
from clusters.embedded.activator.control import ControlServer
from clusters.embedded.activator.proxy.pool import ConnectionPool
from clusters.embedded.activator.report import LoadReport
from clusters.embedded.activator.server import ActivatorServer
from clusters.embedded.activator.throttler import Throttler
from clusters.gateway.token import VARIABLE
from clusters.net import unix_sockets

LOG_SIZE = 4 * 1024 * 1024  # bytes, and one former file of the same size
DRAIN = 30  # s; a held request may wait this long for the model that it woke

log = logging.getLogger("clusters.embedded.activator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    arguments = _parser().parse_args(argv)
    _log_to(arguments.log)
    _allow_many_files()
    try:
        lock = _lock(arguments.control)
        data, control = socket.socket(fileno=arguments.fd), unix_sockets.listen(arguments.control)
        data.setblocking(False)
    except OSError as error:
        log.error("cannot listen on %s: %s", arguments.control, error)
        print(f"activator: cannot listen on {arguments.control}: {error}", file=sys.stderr)
        return 1
    with lock, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(data, control, arguments.drain))
    return 0


async def _run(sock: socket.socket, control: socket.socket, drain: int) -> None:
    host, port = sock.getsockname()[:2]
    clock = SystemClock()
    report = LoadReport()
    throttler = Throttler(report.changed, clock)
    report.observe(throttler.load, throttler.has_endpoints)
    pool = ConnectionPool()
    server = ActivatorServer(Activator(throttler, pool, clock, os.environ.get(VARIABLE, "")), drain)
    link = ControlServer(throttler, report, f"{host}:{port}")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await link.start(control)
    log.info("ready on %s:%d", host, port)
    try:
        await server.serve([sock])
    finally:
        link.close()
        pool.close()
    log.info("drained")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="clusters.embedded.activator", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, metavar="N", help="the listening socket for requests")
    parser.add_argument(
        "--control", type=Path, required=True, metavar="SOCKET", help="unix socket of the control plane"
    )
    parser.add_argument("--log", type=Path, required=True, metavar="FILE")
    parser.add_argument("--drain", type=int, default=DRAIN, metavar="SECONDS", help=f"at SIGTERM (default {DRAIN})")
    return parser


def _lock(control: Path) -> IO[str]:
    """Held as long as the process lives: two activators on one control socket would divide the requests."""
    file = control.with_name(control.name + ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _log_to(path: Path) -> None:
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_SIZE, backupCount=1)
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _allow_many_files() -> None:
    """A thousand held requests are two thousand sockets; the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
