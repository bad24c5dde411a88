"""Starting and adopting the processes of Pods: the container runtime of a node without containers."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusters.base.identity import Identity, identify
from clusters.embedded.kubelet.process.errors import StartFailed
from clusters.embedded.kubelet.process.folders import Run, write_record
from clusters.embedded.kubelet.process.images import Command
from clusters.embedded.kubelet.process.limits import Limits
from clusters.embedded.kubelet.process.process import Process
from clusters.net.sockets import listen_environment


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a start needs. `run_file` is written with the process's `Run` before the start is reported.

    `home` is the state folder, by device and inode.
    `listeners` are sockets that listen on the real ports; the process inherits them
    (`clusters.net.sockets.LISTEN_FDS`).
    """

    command: Command
    env: Mapping[str, str]
    cwd: Path
    log: Path
    limits: Limits
    ports: Mapping[str, int]
    run_file: Path
    home: str
    listeners: tuple[socket.socket, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A running process and its record."""

    process: Process
    run: Run


class ExecRuntime:
    """Processes by fork and exec, children of this one."""

    async def start(self, launch: Launch) -> Started:
        """Start `launch.command.argv`."""
        descriptors = [listener.fileno() for listener in launch.listeners]
        env = {**launch.env, **listen_environment(descriptors)}
        identity = self.spawn(launch.command.argv, env, launch.cwd, launch.log, *descriptors)
        for limit, values in launch.limits.items():  # from outside: a hook between fork and exec would rule out vfork
            _limit(identity.pid, limit, values)
        run = Run(identity, ports=launch.ports, home=launch.home)
        write_record(launch.run_file, run.to_json())
        return Started(Process(identity), run)

    def adopt(self, run: Run) -> Process | None:
        """Watch it; how it ended is known only when it is a child of this very process."""
        return Process.adopt(run.identity)

    @staticmethod
    def spawn(argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, log: Path, *fds: int) -> Identity:
        """Start a process that outlives this one, given the open files `fds`. Raises StartFailed."""
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True, pass_fds=fds,
                )  # fmt: skip
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in an argument
            raise StartFailed(f"cannot start {argv[0] if argv else 'an empty command'}: {error}") from error
        child.returncode = 0  # it is reaped by pidfd, here or by init: Popen is not to wait for it
        identity = identify(child.pid)
        if identity is None:
            raise StartFailed(f"process {child.pid} of {argv[0]} was reaped by somebody else")
        return identity


def _limit(pid: int, limit: int, values: tuple[int, int]) -> None:
    try:
        resource.prlimit(pid, limit, values)
    except ProcessLookupError:
        return  # it has ended already, which its watcher will see
    except (PermissionError, ValueError) as error:
        raise StartFailed(f"cannot set resource limit {limit} to {values[0]}: {error}") from error
