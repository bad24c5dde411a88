"""The zygote: a process that has imported an engine and forks model servers that need not import it again.

    python -m clusters.embedded.kubelet.process.zygote --socket PATH --fd N --module M…

It listens on an inherited unix socket (`--fd`, bound at PATH by whoever started it), serves one request for each
connection, one JSON line each way, and blocks in between:

    {"op": "hello"}                → {…identity…, "stale": bool}     stale: its modules changed on disk
    {"op": "spawn", …see Spawn…}   → {…identity…} | {"error"}
    {"op": "status", …identity…}   → {"status": wait status | null, "running": bool}
    {"op": "shutdown"}             → {}

An identity is {"pid", "startTicks", "boot"}.

A spawn request may carry descriptors of listening sockets (SCM_RIGHTS); the child inherits them.

It has one thread, since a fork copies no others and their locks would stay locked. It outlives its clients; it ends
when asked, or when its socket file is gone. Its children go on without it.
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
from clusters.embedded.kubelet.process.zygote_child import Spawn, run_child

log = logging.getLogger(__name__)

SINGLE_THREADED: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime ≥ 1.29 starts its uploader when it is imported, unless told not to
}
"""Environment under which libraries start no threads when they are imported; whoever starts a zygote sets it."""

RECORD: Final = "zygote.json"  # beside the socket: who this is, for whoever looks for leftovers
MOST_SOCKETS: Final = 253  # in one message: SCM_MAX_FD of Linux
LARGEST_REQUEST: Final = 4 << 20  # bytes; arguments and environment of one process (ARG_MAX is 2 MiB by default)
REQUEST_TIMEOUT: Final = 2.0  # s; a client writes its request at once
SOCKET_CHECK: Final = 15.0  # s between looks at the socket file: nothing tells a process that a file is gone
KEPT_EXITS: Final = 4096  # of children, for clients that come later


class Zygote:
    """Serves one listening socket until `shutdown`."""

    def __init__(self, listener: socket.socket, path: Path, started_at: float) -> None:
        self._listener = listener
        self._path = path
        self._inode = path.stat().st_ino
        self._started_at = started_at
        self._children: dict[int, Identity] = {}
        self._exits: OrderedDict[Identity, int] = OrderedDict()
        self._ended = False

    def serve(self) -> None:
        """Block, answer, reap; return once asked to end, or once the socket file is gone."""
        wakeup, wakeup_write = socket.socketpair()
        with wakeup, wakeup_write:
            wakeup_write.setblocking(False)
            signal.set_wakeup_fd(wakeup_write.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up is written
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
            log.info("socket %s is gone: ending", self._path)
            return False

    def _serve_one(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(REQUEST_TIMEOUT)
            received: list[int] = []
            try:
                request = _read_line(client, received)
                answer = self._answer(request, received) if request and not _has_left(client) else None
            except (OSError, ValueError, KeyError, TypeError) as error:  # a broken client must not end the zygote
                log.warning("refused a request: %r", error)
                answer = {"error": f"{type(error).__name__}: {error}"}
            finally:
                for descriptor in received:
                    os.close(descriptor)  # the child has its own
            if answer is not None:
                self._send(client, answer)

    def _answer(self, request: bytes, received: Sequence[int]) -> dict[str, Any]:
        message = json.loads(request)
        match message["op"]:
            case "hello":
                return _own_identity().to_json() | {"stale": self._is_stale()}
            case "spawn":
                return self._spawn(Spawn.parse(message), received)
            case "status":
                return self._status(Identity.parse(message))
            case "shutdown":
                self._ended = True
                return {}
            case operation:
                raise ValueError(f"unknown operation {operation!r}")

    def _send(self, client: socket.socket, answer: dict[str, Any]) -> None:
        try:
            client.sendall(json.dumps(answer).encode() + b"\n")
        except OSError as error:
            log.warning("a client left without its answer: %s", error)
            if "pid" in answer and answer["pid"] in self._children:
                kill_group(int(answer["pid"]), signal.SIGKILL)  # nobody knows of this child

    def _spawn(self, spawn: Spawn, listeners: Sequence[int]) -> dict[str, Any]:
        """Fork a child that inherits the sockets `listeners`.

        It reports through a pipe what kept it from starting, or nothing.
        """
        report, report_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            run_child(spawn, report_write, listeners)  # does not return
        os.close(report_write)
        with os.fdopen(report, "rb") as pipe:
            error = pipe.read().decode()
        identity = identify(pid)  # not reaped yet, so it is there
        if identity is None:
            raise ProcessLookupError(f"child {pid} is gone")
        self._children[pid] = identity
        return {"error": error} if error else identity.to_json()

    def _status(self, identity: Identity) -> dict[str, Any]:
        self._reap()
        return {"status": self._exits.get(identity), "running": is_running(identity)}

    def _reap(self) -> None:
        while self._children:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            kill_group(ended.si_pid, signal.SIGKILL)  # what it left running, while its number is surely its own
            pid, status = os.waitpid(ended.si_pid, 0)
            identity = self._children.pop(pid, None)
            if identity is not None:
                self._exits[identity] = status
            while len(self._exits) > KEPT_EXITS:
                self._exits.popitem(last=False)

    def _is_stale(self) -> bool:
        """Whether a file of an imported module changed since: a new client wants the new code."""
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
    """Return one line, or nothing when the client left before its end; what was sent with it goes to `descriptors`."""
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk, sent, flags, _ = socket.recv_fds(client, 1 << 16, MOST_SOCKETS, socket.MSG_CMSG_CLOEXEC)
        descriptors += sent
        if not chunk:
            return b""
        received += chunk
        if len(received) > LARGEST_REQUEST:
            raise ValueError(f"a request has at most {LARGEST_REQUEST} bytes")
        if flags & socket.MSG_CTRUNC:
            raise ValueError("not all descriptors of a request were received: too many files are open")
    return bytes(received)


def _has_left(client: socket.socket) -> bool:
    """Whether the client closed its side, so that nobody waits for an answer."""
    readable, _, _ = select.select([client], [], [], 0)
    return bool(readable) and client.recv(1, socket.MSG_PEEK) == b""


def _own_identity() -> Identity:
    identity = identify(os.getpid())
    if identity is None:
        raise FileNotFoundError("/proc does not know this process: a zygote needs Linux with /proc mounted")
    return identity


def import_modules(modules: Sequence[str]) -> None:
    """Import, without starting threads, and put what is there out of the garbage collector's sight.

    Frozen objects are not touched by collections in the children, so their memory stays shared. Raises RuntimeError
    when an import started a thread.
    """
    gc.disable()
    for module in modules:
        importlib.import_module(module)
        threads = len(list(Path("/proc/self/task").iterdir()))
        if threads > 1:
            raise RuntimeError(f"importing {module} started threads ({threads - 1}): it cannot be forked from a zygote")
    gc.collect()
    gc.freeze()
    gc.enable()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(
        prog="clusters.embedded.kubelet.process.zygote", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--socket", type=Path, required=True, help="where the socket stands; gone: the zygote ends")
    parser.add_argument("--home", default="", help="the state folder that it belongs to, by device and inode")
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    parser.add_argument("--module", action="append", default=[], help="a module to import; repeat in order")
    options = parser.parse_args(argv)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    started_at = time.time()
    with socket.socket(fileno=options.fd) as listener:
        record = _own_identity().to_json() | {"home": options.home}
        (options.socket.parent / RECORD).write_text(json.dumps(record))
        import_modules(options.module)
        log.info("ready in %.2f s with %s", time.time() - started_at, ", ".join(options.module))
        Zygote(listener, options.socket, started_at).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
