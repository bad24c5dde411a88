"""The node's runtime: fork from a zygote where the image has an entry to call, else execute the command."""

from __future__ import annotations

import logging

from clusters.embedded.kubelet.process.errors import ZygoteFailed
from clusters.embedded.kubelet.process.folders import ContainerRecord
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, ExitStatus, Process
from clusters.embedded.kubelet.process.runtime import ContainerConfig, ExecRuntime, StartedContainer
from clusters.embedded.kubelet.process.zygotes import ZygoteRuntime

log = logging.getLogger(__name__)


class PodRuntime:
    """Start processes from zygotes, and by exec where a zygote is not available."""

    def __init__(self, zygotes: ZygoteRuntime) -> None:
        self._zygotes = zygotes
        self._exec = ExecRuntime()

    async def start(self, config: ContainerConfig) -> StartedContainer:
        """Start a process, by exec if its zygote fails. Raises RunContainerError."""
        if config.command.modules:
            try:
                return await self._zygotes.start(config)
            except ZygoteFailed as error:
                log.warning("cannot fork %s from a zygote, starting it by exec: %s", config.command.argv[0], error)
                self._kill_unreported_fork(config)
        return await self._exec.start(config)

    def adopt(self, record: ContainerRecord) -> Process | None:
        """Observe a process that was started earlier. Return None when it does not run."""
        return self._zygotes.adopt(record) if record.zygote else self._exec.adopt(record)

    async def read_exit_status(self, record: ContainerRecord) -> ExitStatus:
        """Return the exit status of a process that ended while no kubelet observed it."""
        return await self._zygotes.read_exit_status(record) if record.zygote else UNKNOWN_EXIT

    def _kill_unreported_fork(self, config: ContainerConfig) -> None:
        """Kill the process that the zygote may have forked before it failed."""
        try:
            record = ContainerRecord.parse(config.record_file.read_text())
        except FileNotFoundError:
            return
        process = None if record is None else self.adopt(record)
        if process is not None:
            process.kill()
