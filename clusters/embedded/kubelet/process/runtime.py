"""The container runtime of a node without containers: start and adopt processes."""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusters.base.identity import Identity, identify
from clusters.embedded.kubelet.process.errors import RunContainerError
from clusters.embedded.kubelet.process.folders import ContainerRecord, write_json
from clusters.embedded.kubelet.process.images import ContainerCommand
from clusters.embedded.kubelet.process.limits import ProcessLimits
from clusters.embedded.kubelet.process.process import Process
from clusters.net.sockets import listen_environment


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """The configuration of one start of a container, as in the Container Runtime Interface (CRI).

    `record_file` gets the process's `ContainerRecord` before the start returns.
    `home` is the state folder, by device and inode.
    `listeners` are sockets that listen on the real ports. The process inherits them
    (`clusters.net.sockets.LISTEN_FDS`).
    """

    command: ContainerCommand
    env: Mapping[str, str]
    cwd: Path
    log: Path
    limits: ProcessLimits
    ports: Mapping[str, int]
    record_file: Path
    home: str
    listeners: tuple[socket.socket, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A running process and its record."""

    process: Process
    record: ContainerRecord


class ExecRuntime:
    """Start processes by fork and exec, as children of this one."""

    async def start(self, config: ContainerConfig) -> StartedContainer:
        """Start `config.command.argv`. Raises RunContainerError."""
        descriptors = [listener.fileno() for listener in config.listeners]
        env = {**config.env, **listen_environment(descriptors)}
        identity = self.spawn(config.command.argv, env, config.cwd, config.log, *descriptors)
        process = Process(identity)
        record = ContainerRecord(identity, ports=config.ports, home=config.home)
        try:
            # The parent sets the limits: a hook between fork and exec prevents vfork.
            for limit, values in config.limits.items():
                _set_limit(identity.pid, limit, values)
            write_json(config.record_file, record.to_json())
        except BaseException:
            process.kill()  # nothing would ever end a process without a record
            raise
        return StartedContainer(process, record)

    def adopt(self, record: ContainerRecord) -> Process | None:
        """Observe a running process. Its exit status is only known if it is a child of this process."""
        return Process.adopt(record.identity)

    @staticmethod
    def spawn(argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, log: Path, *fds: int) -> Identity:
        """Start a process that outlives this one and inherits the descriptors `fds`. Raises RunContainerError."""
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True, pass_fds=fds,
                )  # fmt: skip
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in an argument
            raise RunContainerError(f"cannot start {argv[0] if argv else 'an empty command'}: {error}") from error
        child.returncode = 0  # `Process` or init reaps it, so Popen must not wait for it
        identity = identify(child.pid)
        if identity is None:
            raise RunContainerError(f"process {child.pid} of {argv[0]} was reaped by another part of this program")
        return identity


def _set_limit(pid: int, limit: int, values: tuple[int, int]) -> None:
    try:
        resource.prlimit(pid, limit, values)
    except ProcessLookupError:
        return  # it has ended already, which its `Process` observes
    except (PermissionError, ValueError) as error:
        raise RunContainerError(f"cannot set resource limit {limit} to {values[0]}: {error}") from error
