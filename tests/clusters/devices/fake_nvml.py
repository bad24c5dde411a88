"""The functions of `pynvml` that are used, with the signatures, results and error codes of the package.

No machine of the tests has a GPU. The codes and the classes of errors are the package's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml


@dataclass
class FakeNvml:
    """A machine with GPUs: `bridges` and `nvlinks` by pair of positions, `switched` NVLinks of each GPU to switches."""

    count: int = 2
    bridges: dict[tuple[int, int], int] = field(default_factory=dict)
    nvlinks: dict[tuple[int, int], int] = field(default_factory=dict)
    switched: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    utilization: dict[int, int | None] = field(default_factory=dict)
    xids: list[tuple[int, int]] = field(default_factory=list)
    watched: list[int] = field(default_factory=list)
    absent: int = 0
    open: int = 0

    def __getattr__(self, name: str) -> Any:
        """Return a constant or an error of the package."""
        if name.startswith(("NVML_", "NVMLError", "nvmlEventType")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        if self.absent:
            raise pynvml.NVMLError(self.absent)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.count:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid in self.lost:
            raise pynvml.NVMLError(self.lost[uuid])
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Tesla P4"

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:
        return SimpleNamespace(total=8 << 30, free=6 << 30, used=2 << 30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        percent = self.utilization.get(handle, 0)
        if percent is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=percent, memory=0)

    def nvmlEventSetCreate(self) -> str:
        return "set"

    def nvmlDeviceRegisterEvents(self, handle: int, eventTypes: int, eventSet: str) -> None:
        assert (eventTypes, eventSet) == (pynvml.nvmlEventTypeXidCriticalError, "set")
        self.watched.append(handle)

    def nvmlEventSetWait_v2(self, eventSet: str, timeoutms: int) -> Any:
        assert eventSet == "set"
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        handle, xid = self.xids.pop(0)
        return SimpleNamespace(device=handle, eventType=pynvml.nvmlEventTypeXidCriticalError, eventData=xid)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(domain=0, bus=handle + 1, device=0)

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: int, device2: int) -> int:
        pair = (min(device1, device2), max(device1, device2))
        return self.bridges.get(pair, int(pynvml.NVML_TOPOLOGY_SYSTEM))

    def _ends(self, device: int) -> list[int]:
        """Return the other GPU of each NVLink of a GPU; -1 for a switch."""
        pairs = [(pair, count) for pair, count in self.nvlinks.items() if device in pair]
        return [sum(pair) - device for pair, count in pairs for _ in range(count)] + [-1] * self.switched

    def nvmlDeviceGetNvLinkState(self, device: int, link: int) -> int:
        ends = self._ends(device)
        if not ends:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(link < len(ends))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        is_switch = self._ends(handle)[link] < 0
        return int(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if is_switch else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: int, link: int) -> Any:
        return self.nvmlDeviceGetPciInfo(self._ends(device)[link])
