"""Critical Xid events of the driver, by NVML: errors of a GPU that its processes may not notice.

NVIDIA's device plugin takes a GPU with such an event out of service until its restart, except for errors that a program
causes (https://docs.nvidia.com/deploy/xid-errors). The same rules apply here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
"""Graphics engine exception, page fault, channel reset, preemptive cleanup, video processor, context switch timeout."""
MOST_EVENTS: Final = 100
"""Events of one reading. A GPU that fails may report the same error again and again."""


class XidEvents:
    """The events of some GPUs since `start`. NVML stays initialized, since its event sets end with it."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._set: Any = None
        self._faults: dict[str, str] = {}

    def start(self, uuids: Iterable[str]) -> None:
        """Subscribe to the events of these GPUs; those that have none are left out. Raises errors of NVML."""
        nvml = self._nvml
        nvml.nvmlInit()
        self._set = nvml.nvmlEventSetCreate()
        for uuid in uuids:
            with suppress(nvml.NVMLError):  # not supported, as on some virtual machines
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._set)

    def faults(self) -> Mapping[str, str]:
        """Return the GPUs that reported an error since `start`, with the first error of each. It does not wait."""
        nvml = self._nvml
        for _ in range(MOST_EVENTS if self._set is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError:  # no further event; lost GPUs are found by others
                break
            if event.eventData not in OF_PROGRAMS:
                with suppress(nvml.NVMLError):
                    uuid = str(nvml.nvmlDeviceGetUUID(event.device))
                    self._faults.setdefault(uuid, f"the driver reported Xid {event.eventData}")
        return dict(self._faults)
