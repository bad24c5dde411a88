"""The image of the kubelet's tests: a small HTTP server that can fail on command. It imports little to start fast.

--fail MESSAGE        write the message to the termination log and exit 3
--never-ready         /v2/health/ready returns 503 until GET /ready
--ignore-sigterm      ignore SIGTERM
--child               start a child that would outlive the server
--own-session         the child leads a session of its own; `/child` is its pid
"""

from __future__ import annotations

import os
import signal
import socket
import sys

TYPE_CHECKING = False  # typing takes longer to import than all else here
if TYPE_CHECKING:
    from typing import NoReturn

STATE = {"ready": True, "live": True, "child": 0}


def respond(path: str) -> tuple[int, str]:
    if path == "/v2/health/ready":
        return (200, "ready") if STATE["ready"] else (503, "not ready")
    if path == "/v2/health/live":
        return (200, "live") if STATE["live"] else (500, "dead")
    if path.startswith("/exit/"):
        os._exit(int(path.rpartition("/")[2]))
    if path.startswith("/print/"):
        print("x" * int(path.rpartition("/")[2]), flush=True)
        return 200, "printed"
    if path in ("/ready", "/unready"):
        STATE["ready"] = path == "/ready"
    if path == "/child":
        return 200, str(STATE["child"])
    if path == "/die":
        STATE["live"] = False
    if path == "/crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    return 200, f"{os.getpid()} {os.getcwd()}"  # noqa: PTH109 - pathlib takes longer to import than all else


def serve(port: int) -> NoReturn:
    inherited = [socket.socket(fileno=int(word)) for word in os.environ["KNODEL_LISTEN_FDS"].split(",")]
    listener = next(one for one in inherited if one.getsockname() == (os.environ["HOST"], port))
    while True:
        client, _ = listener.accept()
        with client:
            request = client.recv(65536).split()
            if len(request) > 1:
                status, body = respond(request[1].decode())
                client.sendall(f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())


def main(args: list[str]) -> int:
    print("started", *args, flush=True)
    if args[:1] == ["--fail"]:
        with open(os.environ["KNODEL_TERMINATION_LOG"], "w") as log:  # noqa: PTH123
            log.write(args[1])
        return 3
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--ignore-sigterm" in args else lambda *_: sys.exit(0))
    STATE["ready"] = "--never-ready" not in args
    if "--child" in args:
        STATE["child"] = os.fork()
        if not STATE["child"]:
            if "--own-session" in args:
                os.setsid()
            signal.pause()
    return serve(int(os.environ["PORT"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
