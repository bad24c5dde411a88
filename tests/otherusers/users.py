"""Programs run as other users of the machine: `setpriv` from root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# Users of nobody else's: images of containers use 65532 and 65534, and the tests end all processes of two of these.
OWNER: Final = 54533  # who runs the platform
ATTACKER: Final = 54532  # who may use the machine, and nothing else
NEIGHBOUR: Final = 54531  # who runs a platform of their own

HOST: Final = "127.0.0.1"
OPTIONS: Final[tuple[list[str], ...]] = ([], ["SO_REUSEADDR"], ["SO_REUSEPORT"], ["SO_REUSEADDR", "SO_REUSEPORT"])
ATTEMPTS: Final = [(host, options) for host in (HOST, "0.0.0.0", "::") for options in OPTIONS]
"""All ways to bind a TCP port of loopback."""


PROJECT: Final = Path(__file__).parents[2]
NEEDED: Final = tuple(dict.fromkeys(Path(path).resolve() for path in (sys.base_prefix, sys.prefix, PROJECT)))
"""Folders that every user has to read: the interpreter, its packages, the project."""

OPEN_FOLDERS: Final = """
set -e
closed=$1; shift
whole=$(mktemp -d); mount --bind "$closed" "$whole"
mount -t tmpfs -o mode=755 none "$closed"
while [ "$1" != -- ]; do
  mkdir -p "$1"; mount --bind "$whole${1#"$closed"}" "$1"; shift
done
shift
umount "$whole"; rmdir "$whole"
exec "$@"
"""
"""Run a command in a mount namespace where a closed folder is open, with nothing but the folders that are needed."""


def missing() -> str:
    """Return why no program can be run as another user here; empty when one can."""
    if os.geteuid() != 0:
        return "programs of other users are started by root only"
    if not shutil.which("setpriv") or not shutil.which("unshare"):
        return "setpriv and unshare (Debian's package util-linux) are not installed"
    works = subprocess.run(command_as(ATTACKER, sys.executable, "-c", ""), capture_output=True, check=False, cwd="/")
    return works.stderr.decode(errors="replace").strip()


def command_as(uid: int, *command: str) -> list[str]:
    """Return the command that runs `command` as the user `uid`, who is in no other group and has no capability.

    Where a folder that the user needs is below a closed one (an interpreter below /root), a mount namespace opens it.
    """
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    as_user = ["setpriv", *user, "--no-new-privs", *command]
    closed = {folder for path in NEEDED for folder in [*reversed(path.parents)] if not folder.stat().st_mode & 1}
    if not closed:
        return as_user
    top = min(closed, key=lambda folder: len(folder.parts))
    kept = [str(path) for path in NEEDED if top in path.parents]
    return ["unshare", "--mount", "sh", "-c", OPEN_FOLDERS, "sh", str(top), *kept, "--", *as_user]


class Attacker:
    """The program `attacker.py`, run as another user."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, action: str, **arguments: Any) -> Any:
        """Return the result of an action. Raises Refused when the system does not let the user do it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": action, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def can_take(self, port: int) -> bool:
        """Whether the user gets connections to the port by any way to bind it."""
        return any(self.can_listen(port, host, options) for host, options in ATTEMPTS)

    def takes(self, port: int) -> bool:
        """Listen on the port, until `unbind`; False when that is not possible now."""
        try:
            self.do("bind", port=port, host=HOST, options=["SO_REUSEADDR"])
            self.do("listen", port=port)
        except Refused:
            return False
        return True

    def is_refused(self, action: str, **arguments: Any) -> bool:
        """Whether the system forbids the action."""
        try:
            self.do(action, **arguments)
        except Refused as error:
            return str(error) in ("EACCES", "EPERM", "EADDRINUSE")
        return False

    def can_listen(self, port: int, host: str, options: list[str]) -> bool:
        """Whether the user gets connections to the port by this way to bind it."""
        try:
            self.do("bind", port=port, host=host, options=options)
            self.do("listen", port=port)
        except Refused:
            return False
        finally:
            self.do("unbind")
        return True


class Refused(Exception):
    """The name of the errno."""


@contextlib.contextmanager
def attacking() -> Iterator[Attacker]:
    """Run the program of another user."""
    program = Path(__file__).with_name("attacker.py").read_text()
    command = command_as(ATTACKER, sys.executable, "-I", "-c", program)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", env={"PATH": "/usr/bin:/bin"}
    ) as process:
        try:
            yield Attacker(process)
        finally:
            process.kill()
