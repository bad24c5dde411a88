"""Run `knodel` commands as on another system with the base installation: no compiled packages, no Unix-only modules.

    python -m tests.support.portable < commands.json    # [["list", "-A"], …]; prints [{"code", "out", "err"}, …]

The modules of all distributions but those of the base are hidden, and so is what Python has on Unix only.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import io
import json
import os
import signal
import socket
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
OWN = frozenset({"knodel", "serving", "eventing", "autoscaler", "clusters"})
UNIX_MODULES = frozenset({"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "uvloop"})
"""https://docs.python.org/3/library/unix.html."""
UNIX_NAMES = {
    os: (
        "geteuid getuid getegid getgid fork killpg getpgid setsid fchmod fchown chown pread pwrite statvfs sysconf "
        "uname pidfd_open sched_getaffinity O_NOFOLLOW O_CLOEXEC O_NONBLOCK O_DIRECTORY O_PATH"
    ),
    signal: "SIGKILL SIGHUP SIGUSR1 SIGQUIT pidfd_send_signal pthread_sigmask",
    socket: "AF_UNIX SO_PEERCRED",
}
"""Names that these modules do not have on Windows (os: 3.11)."""


def base_modules() -> set[str]:
    """Return the top-level modules of the distributions that the base needs, as installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting, seen, found = [Requirement(text) for text in project["dependencies"]], set[str](), set[str]()
    while waiting:
        requirement = waiting.pop()
        if requirement.name in seen or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(requirement.name)
        distribution = metadata.distribution(requirement.name)
        found |= {Path(file.parts[0]).stem.partition(".")[0] for file in distribution.files or ()}
        waiting += map(Requirement, distribution.requires or ())
    return found


class Hidden(importlib.abc.MetaPathFinder):
    """Refuses every module that is neither ours, of the base, nor of Python on every system; and libyaml."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = frozenset(allowed)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse a hidden module. Raises ModuleNotFoundError."""
        if name.partition(".")[0] in self._allowed and name != "yaml._yaml":
            return None
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become_portable() -> None:
    """Hide what is not there on another system. Modules of Python that adapt to the system are imported before."""
    for name in ("selectors", "ssl", "subprocess", "tempfile", "urllib.request", "zoneinfo"):
        importlib.import_module(name)

    allowed = (sys.stdlib_module_names - UNIX_MODULES) | OWN | base_modules() | {"pip"}
    for name in [name for name in sys.modules if name.partition(".")[0] not in allowed | {"tests"}]:
        if not name.startswith("__"):
            del sys.modules[name]
    sys.meta_path.insert(0, Hidden(allowed))
    socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)  # other systems emulate it
    for module, names in UNIX_NAMES.items():
        for name in names.split():
            vars(module).pop(name, None)
    sys.platform = "darwin"


def main() -> None:
    """Run the commands of stdin and print their results."""
    become_portable()
    from serving.cli.main import main as knodel

    results = []
    for arguments in json.load(sys.stdin):
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = knodel(arguments)
        texts = {name: one.buffer.getvalue().decode() for name, one in (("out", out), ("err", err))}
        results.append({"code": code, **texts})
    json.dump({"results": results, "modules": sorted(sys.modules)}, sys.stdout)


if __name__ == "__main__":
    main()
