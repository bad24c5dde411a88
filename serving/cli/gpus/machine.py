"""The NVIDIA GPUs of this machine, read by NVML (`nvidia-ml-py`), and the models whose processes use them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from autoscaler.gpu.owners import Owner, owner_of
from clusters.base.objects import ANNOTATION_PROCESS, Object, annotations_of
from clusters.base.sizes import human_bytes
from clusters.devices.nvml import Gpu

HEADS = ("gpu", "type", "memory", "used", "free", "busy", "holders")
NO_GPUS: Final = "this machine has no NVIDIA GPUs"
MOST_ANCESTORS: Final = 16
"""Generations of processes between a replica and the engine that uses the GPU."""


def holders_of(gpu: Gpu, pods: Iterable[Object], parent_of: Callable[[int], int]) -> dict[Owner | int, int]:
    """Return the memory in bytes by owner; processes that belong to no Pod by their ids."""
    replicas = {pid: owner_of(pod, {}) for pod in pods if (pid := _pid_of(pod))}
    found: dict[Owner | int, int] = {}
    for process in gpu.processes:
        holder = _owner_of_process(process.pid, replicas, parent_of) or process.pid
        found[holder] = found.get(holder, 0) + process.memory
    return found


def parent_of(pid: int) -> int:
    """Return the id of a process' parent; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def rows(gpus: Iterable[Gpu], pods: Iterable[Object]) -> Iterator[list[str]]:
    """Yield the cells of each GPU."""
    listed = list(pods)
    for gpu in gpus:
        holders = holders_of(gpu, listed, parent_of).items()
        names = ", ".join(f"{_name(holder)} {human_bytes(memory)}" for holder, memory in holders)
        sizes = map(human_bytes, (gpu.memory, gpu.used, gpu.memory - gpu.used))
        yield [str(gpu.index), gpu.name, *sizes, percent(gpu.utilization), names or "-"]


def percent(share: float | None) -> str:
    """Return a share as a cell."""
    return "-" if share is None else f"{share:.0%}"


def value(gpus: Iterable[Gpu], pods: Iterable[Object]) -> dict[str, Any]:
    """Return the structured output; sizes are in bytes."""
    listed = list(pods)
    return {"gpus": [_gpu_value(gpu, listed) for gpu in gpus]}


def _gpu_value(gpu: Gpu, pods: list[Object]) -> dict[str, Any]:
    holders = [
        {"pid": holder, "memory": memory}
        if isinstance(holder, int)
        else {"namespace": holder.namespace, "kind": holder.kind, "name": holder.name, "memory": memory}
        for holder, memory in holders_of(gpu, pods, parent_of).items()
    ]
    return {
        "index": gpu.index,
        "type": gpu.name,
        "uuid": gpu.uuid,
        "memory": gpu.memory,
        "used": gpu.used,
        "free": gpu.memory - gpu.used,
        "utilization": gpu.utilization,
        "holders": holders,
    }


def _pid_of(pod: Object) -> int:
    """Return the process id of a replica; 0 if its annotation is missing or unreadable."""
    try:
        return int(json.loads(annotations_of(pod).get(ANNOTATION_PROCESS, "{}")).get("pid", 0))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0


def _owner_of_process(pid: int, replicas: Mapping[int, Owner], parent_of: Callable[[int], int]) -> Owner | None:
    """Return the owner of a process or of its nearest ancestor that is a replica."""
    for _ in range(MOST_ANCESTORS):
        if pid in replicas or pid <= 1:
            break
        pid = parent_of(pid)
    return replicas.get(pid)


def _name(holder: Owner | int) -> str:
    return f"process {holder}" if isinstance(holder, int) else str(holder)
