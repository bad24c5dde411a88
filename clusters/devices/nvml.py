"""GPUs read by NVML (`nvidia-ml-py`, extra `gpu`): devices, links, faults, and what processes use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from clusters.devices.driver import DRIVER_FILE
from clusters.devices.machine import Device, DevicesError, Machine
from clusters.devices.topology import NODE, NVLINK, PHB, PIX, PXB, SAME_BOARD, SYS
from clusters.devices.xid import XidEvents

NO_DRIVER: Final = "this machine has no NVIDIA GPUs, or their driver is not loaded: `nvidia-smi` shows its state"


class NoDriverError(DevicesError):
    """NVML does not work, since the machine has no driver of NVIDIA."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU; `memory` in bytes, 0 if unknown."""

    pid: int
    memory: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """The state of a GPU of this machine: memory in bytes, `utilization` from 0 to 1 if known."""

    index: int
    name: str
    uuid: str
    memory: int
    used: int
    processes: tuple[Process, ...] = ()
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """The use of a GPU, or of a MIG partition: `memory` and `used` in bytes, `utilization` from 0 to 1 if known."""

    uuid: str
    memory: int
    used: int
    utilization: float | None = None


def load_nvml() -> Any:
    """Return the module `pynvml`. Raises ModuleNotFoundError without the package, NoDriverError without a driver."""
    try:
        import pynvml  # of the extra `gpu`
    except ModuleNotFoundError:
        if not DRIVER_FILE.exists():
            raise NoDriverError(NO_DRIVER) from None
        raise
    return pynvml


def read_gpus(nvml: Any) -> list[Gpu]:
    """Return the GPUs in the order of NVML. Raises NoDriverError; DevicesError for a GPU that has failed."""
    with initialized(nvml):
        return [_read_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]


def read_uses(nvml: Any, visible: str | None = None) -> list[GpuUse]:
    """Return the use of the GPUs in the value of CUDA_VISIBLE_DEVICES; of all for None. Raises DevicesError.

    As in CUDA, nothing counts after an entry that is unknown.
    """
    with initialized(nvml):
        if visible is None:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        else:
            handles = list(_visible_handles(nvml, visible))
        return [_read_use(nvml, handle) for handle in handles]


@contextmanager
def initialized(nvml: Any) -> Iterator[None]:
    """Initialize NVML for a block. Raises NoDriverError; DevicesError for any other error of NVML in the block."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
        raise NoDriverError(NO_DRIVER) from error
    except nvml.NVMLError as error:
        raise DevicesError(f"the GPUs cannot be read: {error}: `nvidia-smi` shows their state") from error
    try:
        yield
    except nvml.NVMLError as error:
        raise DevicesError(f"the GPUs cannot be read: {error}: `nvidia-smi` shows their state") from error
    finally:
        nvml.nvmlShutdown()


class NvmlSource:
    """The GPUs of this machine by NVML; `nvml` is the module `pynvml`."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._known: tuple[str, ...] = ()
        self._events: XidEvents | None = None

    def read(self) -> Machine:
        """Return the GPUs and their links. Raises DevicesError."""
        nvml = self._nvml
        with initialized(nvml):
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            devices = tuple(
                Device(
                    str(nvml.nvmlDeviceGetUUID(handle)),
                    str(nvml.nvmlDeviceGetName(handle)),
                    int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
                for handle in handles
            )
            self._known = tuple(device.uuid for device in devices)
            return Machine(devices, _read_scores(nvml, handles))

    def faults(self) -> Mapping[str, str]:
        """Return the GPUs that were read before and are lost, need a reset, or had a critical error meanwhile.

        Raises DevicesError.
        """
        nvml, found = self._nvml, dict(self._xid_faults())
        fatal = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_NOT_FOUND)
        with initialized(nvml):
            for uuid in self._known:
                try:
                    nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid))
                except nvml.NVMLError as error:
                    if error.value in fatal:
                        found[uuid] = str(error)
        return found

    def _xid_faults(self) -> Mapping[str, str]:
        if self._events is None and self._known:
            self._events = XidEvents(self._nvml)
            with suppress(self._nvml.NVMLError):  # a driver without events
                self._events.start(self._known)
        return self._events.faults() if self._events is not None else {}


def _read_scores(nvml: Any, handles: Sequence[Any]) -> list[list[int]]:
    """Return the scores of all pairs: the PCIe part, and 100 for each NVLink, direct or through switches."""
    bridges = {
        nvml.NVML_TOPOLOGY_INTERNAL: SAME_BOARD,
        nvml.NVML_TOPOLOGY_SINGLE: PIX,
        nvml.NVML_TOPOLOGY_MULTIPLE: PXB,
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: PHB,
        nvml.NVML_TOPOLOGY_NODE: NODE,
        nvml.NVML_TOPOLOGY_SYSTEM: SYS,
    }
    addresses = [_address(nvml.nvmlDeviceGetPciInfo(handle)) for handle in handles]
    links = [_read_links(nvml, handle) for handle in handles]
    scores = [[0] * len(handles) for _ in handles]
    for one, handle in enumerate(handles):
        for other in range(one):
            score = SYS
            with suppress(nvml.NVMLError):  # not supported by some drivers of virtual machines
                score = bridges.get(nvml.nvmlDeviceGetTopologyCommonAncestor(handle, handles[other]), SYS)
            direct = links[one][0].count(addresses[other])
            switched = min(links[one][1], links[other][1])
            scores[one][other] = scores[other][one] = score + NVLINK * (direct + switched)
    return scores


_Address = tuple[int, int, int]


def _read_links(nvml: Any, handle: Any) -> tuple[list[_Address], int]:
    """Return the addresses at the ends of the active NVLinks, and the number of those that end at a switch."""
    ends: list[_Address] = []
    switched = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched += 1
            else:
                ends.append(_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
        except nvml.NVMLError:  # no such link, or no NVLink at all
            continue
    return ends, switched


def _address(pci: Any) -> _Address:
    return int(pci.domain), int(pci.bus), int(pci.device)


def _visible_handles(nvml: Any, visible: str) -> Iterator[Any]:
    for entry in filter(None, map(str.strip, visible.split(","))):
        try:
            by_index = entry.isdecimal()
            yield nvml.nvmlDeviceGetHandleByIndex(int(entry)) if by_index else nvml.nvmlDeviceGetHandleByUUID(entry)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_NOT_FOUND):
                return
            raise


def _read_use(nvml: Any, handle: Any) -> GpuUse:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    utilization = None
    with suppress(nvml.NVMLError):  # not supported with MIG
        utilization = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    return GpuUse(str(nvml.nvmlDeviceGetUUID(handle)), int(memory.total), int(memory.used), utilization)


def _read_gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    use = _read_use(nvml, handle)
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    processes = tuple(Process(int(one.pid), int(one.usedGpuMemory or 0)) for one in running)
    return Gpu(index, str(nvml.nvmlDeviceGetName(handle)), use.uuid, use.memory, use.used, processes, use.utilization)
