"""A program that another user of the machine runs: it does what one JSON line on stdin names, and prints the result.

    {"do": "bind", "host", "port", "options": ["SO_REUSEADDR", …]}    keep a bound socket
    {"do": "listen", "port"}                                          listen on the socket that was bound to the port
    {"do": "unbind"}                                                  close all sockets
    {"do": "callers"}                                                 how many connections came to the sockets
    {"do": "race", "port"}                                            try without a pause to listen on the port, …
    {"do": "won"}                                                     … until now: whether that succeeded
    {"do": "read" | "list" | "write" | "connect", "path"}             a file, a folder, a unix socket
    {"do": "post", "port", "path", "headers", "body"}                 send an HTTP request, and return the status
    {"do": "link", "path", "to"}                                      make a symbolic link
    {"do": "signal", "pid"}                                           end a process

The answer is {"error": errno's name} or {"result": …}. It needs the standard library only, since the user who runs it
may not read the project.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

KEPT: dict[int, socket.socket] = {}
RACES: list[Race] = []


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


def callers() -> int:
    count = 0
    for one in KEPT.values():
        one.setblocking(False)
        try:
            while True:
                one.accept()[0].close()
                count += 1
        except BlockingIOError:
            continue
    return count


class Race(threading.Thread):
    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.over = self.won = False

    def run(self) -> None:
        while not self.over and not self.won:
            try:
                with socket.socket() as made:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    made.bind(("127.0.0.1", self.port))
                    made.listen()
                    self.won = True
            except OSError:
                continue


def race(port: int) -> None:
    RACES.append(Race(port))
    RACES[-1].start()


def won() -> bool:
    last = RACES.pop()
    last.over = True
    last.join()
    return last.won


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


def link(path: str, to: str) -> None:
    Path(path).symlink_to(to)


def post(port: int, path: str, headers: dict[str, str], body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def signal(pid: int) -> None:
    os.kill(pid, 9)


ACTIONS: dict[str, Callable[..., object]] = {
    "bind": bind, "listen": listen, "unbind": unbind, "callers": callers, "race": race, "won": won,
    "read": read, "list": os.listdir, "write": write, "connect": connect, "post": post, "link": link, "signal": signal,
}  # fmt: skip


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": ACTIONS[request.pop("do")](**request)}
        except OSError as error:
            answer = {"error": errno.errorcode[error.errno or 0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
