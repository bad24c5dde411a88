"""A program that another user of the machine runs: it does what one JSON line on stdin names, and prints the result.

    {"do": "bind", "host", "port", "options": ["SO_REUSEADDR", …]}    keep a bound socket
    {"do": "listen", "port"}                                          listen on the socket that was bound to the port
    {"do": "unbind"}                                                  close all sockets
    {"do": "read" | "list" | "write" | "connect", "path"}             a file, a folder, a unix socket

The answer is {"error": errno's name} or {"result": …}. It needs the standard library only, since the user who runs it
may not read the project.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path

KEPT: dict[int, socket.socket] = {}


def bind(host: str, port: int, options: list[str]) -> None:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    for option in options:
        made.setsockopt(socket.SOL_SOCKET, getattr(socket, option), 1)
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    KEPT[port] = made


def listen(port: int) -> None:
    KEPT[port].listen()


def unbind() -> None:
    while KEPT:
        KEPT.popitem()[1].close()


def read(path: str) -> str:
    return Path(path).read_bytes().decode(errors="replace")


def write(path: str) -> None:
    Path(path).write_text("written by another user")


def connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(Path(path).parent, os.O_PATH)  # its address may be too long
        made.connect(f"/proc/self/fd/{folder}/{Path(path).name}")


def main() -> None:
    actions = {"bind": bind, "listen": listen, "unbind": unbind, "read": read, "list": os.listdir, "write": write,
               "connect": connect}  # fmt: skip
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": actions[request.pop("do")](**request)}  # type: ignore[operator]
        except OSError as error:
            answer = {"error": errno.errorcode[error.errno or 0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
