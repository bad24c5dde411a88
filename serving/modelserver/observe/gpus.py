"""Sample the GPUs that the process of a model server may use, by NVML: their utilization and their memory.

On one machine these are the GPUs that the platform assigned; in a Pod on Kubernetes, those that its container sees. The
engine may be a process of its own: NVML reads whole GPUs. What others do on the same GPU is part of the reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from clusters.devices.driver import DRIVER_FILE
from clusters.net.exposition import Family
from serving.modelserver.base.stats import Stats

if TYPE_CHECKING:  # most servers have no GPU, and start sooner without these modules
    from clusters.devices.nvml import GpuUse

log = logging.getLogger(__name__)

PERIOD: Final = 5.0
"""Seconds between two readings. NVML averages the utilization over at most one second before each."""
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"

Read = Callable[[], "Sequence[GpuUse]"]


def may_have_gpus(environ: Mapping[str, str]) -> bool:
    """Return whether the driver is loaded, and the process may see GPUs. It takes one system call at most."""
    return environ.get(VISIBLE) != "" and DRIVER_FILE.exists()


async def sample_gpus(stats: Stats, environ: Mapping[str, str]) -> None:
    """Record readings in `stats` until cancelled; return at once without the package `nvidia-ml-py`."""
    from clusters.devices.machine import DevicesError
    from clusters.devices.nvml import load_nvml, read_uses

    try:
        nvml = await asyncio.to_thread(load_nvml)
    except (ModuleNotFoundError, DevicesError):
        return
    read = partial(read_uses, nvml, environ.get(VISIBLE))
    while True:
        await record_reading(stats, read)
        await asyncio.sleep(PERIOD)


async def record_reading(stats: Stats, read: Read) -> None:
    """Record one reading. A GPU that cannot be read has none; the platform notices those that are lost."""
    from clusters.devices.machine import DevicesError

    try:
        stats.gpus = tuple(await asyncio.to_thread(read))
    except DevicesError as error:
        if stats.gpus:
            log.warning("the use of the GPUs is not known any more: %s", error)
        stats.gpus = ()


def gpu_families(stats: Stats) -> list[Family]:
    """Return the last readings as metric families; none without GPUs."""
    gpus = [({"revision": stats.revision, "gpu": one.uuid}, one) for one in stats.gpus]
    if not gpus:
        return []
    busy = tuple((labels, one.utilization) for labels, one in gpus if one.utilization is not None)
    return [
        *(
            [Family("knodel_gpu_utilization", "gauge", "Share of time in which the GPU computed.", busy)]
            if busy
            else []
        ),
        Family(
            "knodel_gpu_memory_used_bytes",
            "gauge",
            "Memory of the GPU that is in use, by all processes, in bytes.",
            tuple((labels, float(one.used)) for labels, one in gpus),
        ),
        Family(
            "knodel_gpu_memory_bytes",
            "gauge",
            "Memory of the GPU, in bytes.",
            tuple((labels, float(one.memory)) for labels, one in gpus),
        ),
    ]
