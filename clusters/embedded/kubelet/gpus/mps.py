"""Parts of a GPU by NVIDIA's Multi-Process Service (MPS): one control daemon for each GPU of which Pods have parts.

The daemons belong to the platform. They outlive a killed kubelet, as their clients do, and the next one adopts them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from clusters.base.clock import Clock
from clusters.base.identity import Identity, is_running
from clusters.devices.machine import Device
from clusters.embedded.kubelet.gpus.assignment import VISIBLE, WHOLE
from clusters.embedded.kubelet.process.environment import PROCESS_HOME, PROCESS_OF, PROCESS_ROLE, node_environment
from clusters.embedded.kubelet.process.folders import PRIVATE, Folders, write_json
from clusters.embedded.kubelet.process.process import Process, terminate
from clusters.embedded.kubelet.process.runtime import ExecRuntime

COMMAND: Final = "nvidia-cuda-mps-control"
ROLE: Final = "mps"
STOP_GRACE: Final = 5.0  # s for a daemon to end
_MIB: Final = 1 << 20


class MpsDaemons:
    """Start, adopt and stop the control daemons of one state folder."""

    def __init__(self, folders: Folders, clock: Clock) -> None:
        self._folders = folders
        self._root = folders.state_dir / "mps"
        self._clock = clock
        self._started: dict[str, Process] = {}  # observed, so that they are reaped

    @staticmethod
    def available() -> bool:
        """Return whether the daemon's command is on the PATH."""
        return shutil.which(COMMAND) is not None

    def ensure(self, device: Device) -> None:
        """Start the daemon of a GPU unless it runs. Raises RunContainerError, OSError."""
        folder = self._root / device.uuid
        if _recorded(folder) is not None:
            return
        for path in (folder, folder / "pipe", folder / "log"):
            path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        environment = node_environment() | _daemon_environment(folder) | {VISIBLE: device.uuid}
        environment |= {PROCESS_OF: str(self._folders.state_dir), PROCESS_HOME: self._folders.home, PROCESS_ROLE: ROLE}
        identity = ExecRuntime.spawn((COMMAND, "-f"), environment, Path("/"), folder / "log" / "control.out")
        self._started[device.uuid] = Process(identity)
        write_json(folder / "process.json", identity.to_json())

    def environment(self, device: Device, share: int) -> dict[str, str]:
        """Return the variables of a client that may use `share` thousandths of a GPU's processors and memory."""
        return _daemon_environment(self._root / device.uuid) | {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{share * 100 / WHOLE:g}",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_share(device, share) // _MIB}M",
        }

    async def shut_down(self) -> None:
        """Stop all daemons of this state folder, also those of earlier kubelets. Their clients must have ended."""
        for folder in self._root.glob("*"):
            identity = _recorded(folder)
            process = self._started.get(folder.name) or (Process.adopt(identity) if identity else None)
            if process is not None:
                await terminate(process, STOP_GRACE, self._clock)


def memory_share(device: Device, share: int) -> int:
    """Return the bytes of a GPU's memory that `share` thousandths are."""
    return device.memory * share // WHOLE


def _daemon_environment(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def _recorded(folder: Path) -> Identity | None:
    """Return the recorded daemon of a GPU, None if it does not run."""
    try:
        identity = Identity.parse(json.loads((folder / "process.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return identity if is_running(identity) else None
