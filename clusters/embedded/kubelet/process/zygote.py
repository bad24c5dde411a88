"""The zygote: a process that imports an engine once and forks model servers that start without importing it.

    python -m clusters.embedded.kubelet.process.zygote --socket PATH --fd N --module M…

It listens on an inherited unix socket (`--fd`), which its parent bound at PATH. It serves one request for each
connection, with one JSON line in each direction:

    {"op": "hello"}                     → {…identity…, "stale": bool}     stale: its modules changed on disk
    {"op": "spawn", …SpawnRequest…}     → {…identity…} | {"error"}
    {"op": "status", …identity…}        → {"status": wait status | null, "running": bool}
    {"op": "shutdown"}                  → {}

An identity is {"pid", "startTicks", "boot"}. A spawn request may carry descriptors of listening sockets (SCM_RIGHTS),
which the child inherits.

The zygote has one thread, because a fork copies no other threads and locks that they hold would stay locked. It
outlives its clients. It exits on a shutdown request or when its socket file is removed. Its children continue.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clusters.base.identity import Identity, identify, is_running, kill_group
from clusters.embedded.kubelet.process.zygote_child import SpawnRequest, run_child

log = logging.getLogger(__name__)

SINGLE_THREADED: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime ≥ 1.29 starts an uploader thread on import without it
}
"""Environment of a zygote, under which libraries start no threads when they are imported."""

RECORD_NAME: Final = "zygote.json"  # file beside the socket with the identity of the zygote
MAX_SOCKETS: Final = 253  # in one message; SCM_MAX_FD of Linux
MAX_REQUEST: Final = 4 << 20  # bytes; arguments and environment of one process (ARG_MAX is 2 MiB by default)
REQUEST_TIMEOUT: Final = 2.0  # s; a client writes its request at once
SOCKET_CHECK: Final = 15.0  # s between checks whether the socket file still exists
KEPT_EXITS: Final = 4096  # exit statuses of children that are kept for later requests


class Zygote:
    """Serve one listening socket until a shutdown request."""

    def __init__(self, listener: socket.socket, path: Path, started_at: float) -> None:
        self._listener = listener
        self._path = path
        self._inode = path.stat().st_ino
        self._started_at = started_at
        self._children: dict[int, Identity] = {}
        self._exits: OrderedDict[Identity, int] = OrderedDict()
        self._ended = False

    def serve(self) -> None:
        """Serve requests and reap children until a shutdown request or the removal of the socket file."""
        wakeup, wakeup_write = socket.socketpair()
        with wakeup, wakeup_write:
            wakeup_write.setblocking(False)
            signal.set_wakeup_fd(wakeup_write.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler no wake-up is written
            while not self._ended and self._is_reachable():
                ready, _, _ = select.select([self._listener, wakeup], [], [], SOCKET_CHECK)
                if wakeup in ready:
                    wakeup.recv(4096)
                self._reap()
                if self._listener in ready:
                    self._serve_one()

    def _is_reachable(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            log.info("socket %s was removed, exiting", self._path)
            return False

    def _serve_one(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(REQUEST_TIMEOUT)
            received: list[int] = []
            try:
                request = _read_line(client, received)
                response = self._handle(request, received) if request and not _is_closed(client) else None
            except (OSError, ValueError, KeyError, TypeError) as error:  # a broken client must not end the zygote
                log.warning("rejected a request: %r", error)
                response = {"error": f"{type(error).__name__}: {error}"}
            finally:
                for descriptor in received:
                    os.close(descriptor)  # the child has its own
            if response is not None:
                self._send(client, response)

    def _handle(self, request: bytes, received: Sequence[int]) -> dict[str, Any]:
        message = json.loads(request)
        match message["op"]:
            case "hello":
                return _own_identity().to_json() | {"stale": self._is_stale()}
            case "spawn":
                return self._spawn(SpawnRequest.parse(message), received)
            case "status":
                identity = Identity.parse(message)
                self._reap()
                return {"status": self._exits.get(identity), "running": is_running(identity)}
            case "shutdown":
                self._ended = True
                return {}
            case operation:
                raise ValueError(f"unknown operation {operation!r}")

    def _send(self, client: socket.socket, response: dict[str, Any]) -> None:
        try:
            client.sendall(json.dumps(response).encode() + b"\n")
        except OSError as error:
            log.warning("cannot send a response: %s", error)
            if "pid" in response and response["pid"] in self._children:
                kill_group(int(response["pid"]), signal.SIGKILL)  # the client does not know of this child

    def _spawn(self, request: SpawnRequest, listeners: Sequence[int]) -> dict[str, Any]:
        """Fork a child that inherits the sockets `listeners`.

        The child writes an error of its start into a pipe, and closes the pipe without writing on success.
        """
        report, report_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            run_child(request, report_write, listeners)  # does not return
        os.close(report_write)
        with os.fdopen(report, "rb") as pipe:
            error = pipe.read().decode()
        identity = identify(pid)  # found, because it was not reaped yet
        if identity is None:
            raise ProcessLookupError(f"child {pid} is gone")
        self._children[pid] = identity
        return {"error": error} if error else identity.to_json()

    def _reap(self) -> None:
        while self._children:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            kill_group(ended.si_pid, signal.SIGKILL)  # its children, while its pid cannot be reused yet
            pid, status = os.waitpid(ended.si_pid, 0)
            identity = self._children.pop(pid, None)
            if identity is not None:
                self._exits[identity] = status
            while len(self._exits) > KEPT_EXITS:
                self._exits.popitem(last=False)

    def _is_stale(self) -> bool:
        """Return whether a file of an imported module changed on disk since the start."""
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if file is None:
                continue
            try:
                if Path(file).stat().st_mtime > self._started_at:
                    return True
            except OSError:
                return True
        return False


def _read_line(client: socket.socket, descriptors: list[int]) -> bytes:
    """Return one line, empty when the client closes the connection before its end.

    Received descriptors are appended to `descriptors`. Raises ValueError for a line that is too long.
    """
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk, sent, flags, _ = socket.recv_fds(client, 1 << 16, MAX_SOCKETS, socket.MSG_CMSG_CLOEXEC)
        descriptors += sent
        if not chunk:
            return b""
        received += chunk
        if len(received) > MAX_REQUEST:
            raise ValueError(f"invalid request: it has more than {MAX_REQUEST} bytes")
        if flags & socket.MSG_CTRUNC:
            raise ValueError("cannot receive all descriptors of a request: too many open files")
    return bytes(received)


def _is_closed(client: socket.socket) -> bool:
    """Return whether the client closed the connection and so does not wait for a response."""
    readable, _, _ = select.select([client], [], [], 0)
    return bool(readable) and client.recv(1, socket.MSG_PEEK) == b""


def _own_identity() -> Identity:
    identity = identify(os.getpid())
    if identity is None:
        raise FileNotFoundError("this process is not in /proc: a zygote needs Linux with /proc mounted")
    return identity


def import_modules(modules: Sequence[str]) -> None:
    """Import the modules and freeze all objects. Raises RuntimeError when an import starts a thread.

    The garbage collector of a child does not touch frozen objects, so their memory stays shared.
    """
    gc.disable()
    for module in modules:
        importlib.import_module(module)
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads > 1:
            raise RuntimeError(f"importing {module} started threads ({threads - 1}): a zygote cannot fork it")
    gc.collect()
    gc.freeze()
    gc.enable()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a zygote; the entry point of its process."""
    parser = argparse.ArgumentParser(
        prog="clusters.embedded.kubelet.process.zygote", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--socket", type=Path, required=True, help="path of the socket; the zygote exits when it is removed"
    )
    parser.add_argument("--home", default="", help="state folder, by device and inode")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the listening socket")
    parser.add_argument("--module", action="append", default=[], help="module to import; may be repeated")
    options = parser.parse_args(argv)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    started_at = time.time()
    with socket.socket(fileno=options.fd) as listener:
        record = _own_identity().to_json() | {"home": options.home}
        (options.socket.parent / RECORD_NAME).write_text(json.dumps(record))
        import_modules(options.module)
        log.info("ready after %.2f s with %s", time.time() - started_at, ", ".join(options.module))
        Zygote(listener, options.socket, started_at).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
