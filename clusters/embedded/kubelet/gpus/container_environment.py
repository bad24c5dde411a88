"""The environment variables by which a container's process sees its GPUs, and only these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clusters.embedded.kubelet.gpus.assignment import VISIBLE, WHOLE
from clusters.embedded.kubelet.gpus.device_manager import DeviceManager
from clusters.embedded.kubelet.gpus.mps import MpsDaemons, memory_share

MEMORY_VARIABLE: Final = "KNODEL_GPU_MEMORY"
"""The bytes of GPU memory that a program should use, where nothing limits it."""
SHARE_VARIABLE: Final = "KNODEL_GPU_SHARE"
"""The same as a part of the GPU's memory, from 0 to 1."""


def gpu_environment(devices: DeviceManager, mps: MpsDaemons, uid: str, declared: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the GPUs of a Pod. Starts the MPS daemon for a part of a GPU.

    A Pod without an assignment sees no GPU, unless its own variable says otherwise, or no GPU is known. Raises
    RunContainerError, OSError.
    """
    held = devices.assignment(uid)
    if held is None:
        return {VISIBLE: ""} if devices.known and VISIBLE not in declared else {}
    env = {VISIBLE: ",".join(held.uuids), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    device = next((one for one in devices.machine.devices if one.uuid in held.uuids), None)
    if held.share == WHOLE or device is None:
        return env
    if mps.available():
        mps.ensure(device)
        return env | mps.environment(device, held.share)
    return env | {MEMORY_VARIABLE: str(memory_share(device, held.share)), SHARE_VARIABLE: f"{held.share / WHOLE:g}"}
