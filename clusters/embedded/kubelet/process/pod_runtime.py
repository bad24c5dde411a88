"""The node's runtime: forks from a zygote where the image allows it, else starts the command."""

from __future__ import annotations

import logging

from clusters.embedded.kubelet.process.errors import ZygoteFailed
from clusters.embedded.kubelet.process.folders import Run
from clusters.embedded.kubelet.process.process import UNKNOWN_EXIT, Exit, Process
from clusters.embedded.kubelet.process.runtime import ExecRuntime, Launch, Started
from clusters.embedded.kubelet.process.zygotes import ZygoteRuntime

log = logging.getLogger(__name__)


class PodRuntime:
    """Starts a process by its engine's zygote where there is one, else by exec."""

    def __init__(self, zygotes: ZygoteRuntime) -> None:
        self._zygotes = zygotes
        self._exec = ExecRuntime()

    async def start(self, launch: Launch) -> Started:
        """Start a process; a zygote that fails costs only the time that it saves. Raises StartFailed."""
        if launch.command.modules:
            try:
                return await self._zygotes.start(launch)
            except ZygoteFailed as error:
                log.warning("starting %s without a zygote: %s", launch.command.argv[0], error)
                self._end_twin(launch)
        return await self._exec.start(launch)

    def adopt(self, run: Run) -> Process | None:
        """Watch a process started earlier; None when it does not run any more."""
        return self._zygotes.adopt(run) if run.zygote else self._exec.adopt(run)

    async def exit_of(self, run: Run) -> Exit:
        """How a process that nobody watched has ended, as far as anybody knows."""
        return await self._zygotes.exit_of(run) if run.zygote else UNKNOWN_EXIT

    def _end_twin(self, launch: Launch) -> None:
        """The zygote may have forked and ended before it could say so."""
        try:
            run = Run.parse(launch.run_file.read_text())
        except FileNotFoundError:
            return
        process = None if run is None else self.adopt(run)
        if process is not None:
            process.kill()
