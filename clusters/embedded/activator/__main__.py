"""Run the activator: `python -m clusters.embedded.activator --fd N --control SOCKET --log FILE`.

The control plane passes the listening socket N and keeps it open. So requests wait in it while another activator
starts, and no other process can take its address. The environment variable `KNODEL_GATEWAY_TOKEN` has the token of
requests from the gateway. Exit codes: 0 after a drain, 1 when the control socket is in use, 2 for wrong usage.
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
from clusters.embedded.activator.control import ControlServer, LoadReporter
from clusters.embedded.activator.handler import ActivationHandler
from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.embedded.activator.proxy.pool import UpstreamPool
from clusters.embedded.activator.throttler import Throttler
from clusters.gateway.token import VARIABLE
from clusters.net import unix_sockets
from clusters.net.server.server import HttpServer

LOG_SIZE = 4 * 1024 * 1024  # bytes; one older file of the same size is kept
DRAIN = 30  # s; a held request may wait this long for its model
KEEP_ALIVE = 2 * 3600  # s; longer than the gateway's idle timeout of 1 h, so it never uses a connection that is closing

log = logging.getLogger("clusters.embedded.activator")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, and return the exit code."""
    arguments = _parser().parse_args(argv)
    handler = logging.handlers.RotatingFileHandler(arguments.log, maxBytes=LOG_SIZE, backupCount=1)
    logging.basicConfig(
        handlers=[handler], level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # 1 000 held requests need 2 000 sockets
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
    reporter = LoadReporter()
    throttler = Throttler(reporter.changed, clock)
    reporter.observe(throttler.load, throttler.has_endpoints)
    pool = UpstreamPool()
    handler = ActivationHandler(throttler, pool, clock, os.environ.get(VARIABLE, ""))
    server = HttpServer(handler, CallerConnection, keep_alive=KEEP_ALIVE, drain=drain)
    control_server = ControlServer(throttler, reporter, f"{host}:{port}")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stop)
    await control_server.start(control)
    log.info("ready on %s:%d", host, port)
    try:
        await server.serve(sock)
    finally:
        control_server.close()
        pool.close()
    log.info("drained")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="clusters.embedded.activator", description=__doc__)
    add = parser.add_argument
    add("--fd", type=int, required=True, metavar="N", help="descriptor of the listening socket")
    add("--control", type=Path, required=True, metavar="SOCKET", help="Unix socket for the control plane")
    add("--log", type=Path, required=True, metavar="FILE", help="log file")
    drain = f"maximum time to finish requests at SIGTERM (default {DRAIN})"
    add("--drain", type=int, default=DRAIN, metavar="SECONDS", help=drain)
    return parser


def _lock(control: Path) -> IO[str]:
    """Return a lock file that is locked until the process ends. Raises OSError when another process has the lock.

    Two activators on one control socket would split the requests.
    """
    file = control.with_name(control.name + ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


if __name__ == "__main__":
    sys.exit(main())
