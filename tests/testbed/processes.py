"""The testbed's long-running processes: started as sessions of their own, recorded, found again, ended by id.

Every one carries MARKER in its environment, which what it starts inherits: so also a process whose record was never
written (the testbed was killed in between) is found and ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from clusters.base.identity import PROC, Identity, identify, is_running
from clusters.base.processes import start_detached
from tests.testbed import cgroups, commands, files
from tests.testbed.errors import TestbedError
from tests.testbed.paths import Paths
from tests.testbed.waiting import becomes

MARKER: Final = "KNODEL_TESTBED"  # environment variable: the state folder of the testbed that a process belongs to
_KILLED: Final = 10.0  # s within which the kernel ends a killed process, also on a busy machine
_LAST_LINES: Final = 5
_DIGEST_LENGTH: Final = 16  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Component:
    """A process to run: `ready` tells whether it serves, `files` are what it reads when it starts.

    `start` and `grace` are the seconds that it may take to serve, and to end after SIGTERM.
    """

    name: str
    command: tuple[str, ...]
    ready: Callable[[], bool]
    files: tuple[Path, ...] = ()
    start: float = 60.0
    grace: float = 5.0

    @property
    def digest(self) -> str:
        """Of command line and files: a component for which one has changed is started anew."""
        digest = hashlib.sha256("\0".join(self.command).encode())
        for path in self.files:
            digest.update(b"\0" + path.read_bytes())
        return digest.hexdigest()[:_DIGEST_LENGTH]


class Processes:
    """Starts, finds and ends the components of one testbed."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def ensure(self, component: Component) -> bool:
        """Make the component run with this command and be ready; whether it had to be started.

        Raises TestbedError with the end of its log when it ends, or is not ready in time.
        """
        identity = self.running(component.name)
        current = identity is not None and self._digest(component.name) == component.digest
        if identity is not None and current and self._serves(component, identity):
            return False
        self.end([component])  # also one that was just killed and is not quite gone
        end_all(self._strays(component), component.grace)
        if not self._serves(component, self._start(component)):
            raise TestbedError(f"{component.name} ended: {self._last_lines(component.name)}")
        return True

    def running(self, name: str) -> Identity | None:
        """The process of the component; None when it does not run."""
        identity = self._recorded(name)
        return identity if identity is not None and is_running(identity) else None

    def log(self, name: str) -> Path:
        """Where the output of the component goes."""
        return self._paths.logs / f"{name}.log"

    def end(self, components: Iterable[Component], first: signal.Signals = signal.SIGTERM) -> None:
        """End the components that run, all at a time: signal `first`, after the longest grace SIGKILL."""
        wanted = list(components)
        found = [identity for each in wanted if (identity := self._recorded(each.name)) is not None]
        end_all(found, max((each.grace for each in wanted), default=0.0), first)
        for each in wanted:
            self._record(each.name).unlink(missing_ok=True)

    def _start(self, component: Component) -> Identity:
        self._paths.logs.mkdir(parents=True, exist_ok=True)
        environment = commands.environment(**{MARKER: str(self._paths.state)})
        try:
            identity = start_detached(
                component.command, log=self.log(component.name), cwd=self._paths.state, environment=environment
            )
        except OSError as exc:
            raise TestbedError(f"{component.name} cannot be started: {component.command[0]}: {exc.strerror}") from exc
        cgroups.join(identity.pid)
        files.write(self._record(component.name), json.dumps(asdict(identity) | {"digest": component.digest}) + "\n")
        return identity

    def _serves(self, component: Component, identity: Identity) -> bool:
        """Whether the process comes to serve; False when it ends. Raises TestbedError when neither happens in time."""
        if not becomes(lambda: component.ready() or not is_running(identity), component.start):
            last = self._last_lines(component.name)
            raise TestbedError(f"{component.name} not ready within {component.start:g} s: {last}")
        return is_running(identity)

    def _strays(self, component: Component) -> list[Identity]:
        """Processes of the component that have no record, as the testbed was killed when it had just started them."""
        program = Path(component.command[0]).name
        return [each for each in marked(self._paths.state) if _program(each) == program]

    def _last_lines(self, name: str) -> str:
        path = self.log(name)
        lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:] if path.exists() else []
        return f"{' | '.join(lines)} (see {path})"

    def _recorded(self, name: str) -> Identity | None:
        """The process that was started last, whether it runs or not; None without a readable record."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            record = json.loads(self._record(name).read_text())
            return Identity(int(record["pid"]), int(record["start_ticks"]))
        return None

    def _digest(self, name: str) -> str:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(self._record(name).read_text()).get("digest", ""))
        return ""

    def _record(self, name: str) -> Path:
        return self._paths.records / f"{name}.json"


def end_all(identities: Iterable[Identity], grace: float, first: signal.Signals = signal.SIGTERM) -> None:
    """Signal `first` to all, after `grace` seconds SIGKILL to those left. Raises TestbedError when one survives it.

    Returns once every thread has ended and every file is closed: until then a port may still be taken.
    """
    with contextlib.ExitStack() as stack:
        wanted = list(identities)
        left = [handle for identity in wanted if (handle := _handle(identity, stack)) is not None]
        for number, patience in ((first, grace), (signal.SIGKILL, _KILLED)):
            for handle in left:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            left = _still_there(left, patience)
        for identity in wanted:
            _reap(identity)
        if left:
            raise TestbedError(f"{len(left)} processes survive SIGKILL: they hang in the kernel, see /proc/PID/stack")


def marked(state: Path) -> Iterator[Identity]:
    """The processes of this machine that belong to the testbed in folder `state`, but for this very one."""
    wanted = f"{MARKER}={state}".encode()
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and wanted in _environment(entry):
            identity = identify(int(entry.name))
            if identity is not None and is_running(identity):
                yield identity


def _program(identity: Identity) -> str:
    with contextlib.suppress(OSError):
        return Path((PROC / str(identity.pid) / "cmdline").read_text().split("\0")[0]).name
    return ""


def _environment(process: Path) -> list[bytes]:
    with contextlib.suppress(OSError):
        return (process / "environ").read_bytes().split(b"\0")
    return []


def _handle(identity: Identity, stack: contextlib.ExitStack) -> int | None:
    """A descriptor of this very process, which can be read once all of its threads have ended."""
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return None
    stack.callback(os.close, handle)
    return handle if identify(identity.pid) == identity else None


def _reap(identity: Identity) -> None:
    """A process that this very process started waits for that, once it has ended."""
    if identify(identity.pid) == identity:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)


def _still_there(handles: list[int], patience: float) -> list[int]:
    poll, left, deadline = select.poll(), set(handles), time.monotonic() + patience
    for handle in handles:
        poll.register(handle, select.POLLIN)
    while left and (wait := deadline - time.monotonic()) > 0:
        for handle, _ in poll.poll(wait * 1000):
            poll.unregister(handle)
            left.remove(handle)
    return sorted(left)
