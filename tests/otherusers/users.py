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

OWNER: Final = 65533  # who runs the platform
ATTACKER: Final = 65532  # who may use the machine, and nothing else

HOST: Final = "127.0.0.1"
ATTEMPTS: Final = [
    (host, options)
    for host in (HOST, "0.0.0.0", "::")
    for options in ([], ["SO_REUSEADDR"], ["SO_REUSEPORT"], ["SO_REUSEADDR", "SO_REUSEPORT"])
]
"""All ways to bind a TCP port of loopback."""


def missing() -> str:
    """Return why no program can be run as another user here; empty when one can."""
    if os.geteuid() != 0:
        return "programs of other users are started by root only"
    return "" if shutil.which("setpriv") else "setpriv (Debian's package util-linux) is not installed"


def command_as(uid: int, *command: str) -> list[str]:
    """Return the command that runs `command` as the user `uid`, who is in no other group and has no capability."""
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    return ["setpriv", *user, "--no-new-privs", *command]


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
        return any(self._listens(port, host, options) for host, options in ATTEMPTS)

    def is_refused(self, action: str, **arguments: Any) -> bool:
        """Whether the system forbids the action."""
        try:
            self.do(action, **arguments)
        except Refused as error:
            return str(error) in ("EACCES", "EPERM", "EADDRINUSE")
        return False

    def _listens(self, port: int, host: str, options: list[str]) -> bool:
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
