"""The Node object of the machine, with its GPUs as a device plugin and NVIDIA's labeller would show them. Pure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Mapping
from datetime import datetime
from typing import Final

from clusters.base.objects import GPU_LOST, NODE, NVIDIA_GPU, Object, with_condition
from clusters.devices.machine import Machine

LABEL_PRODUCT: Final = "nvidia.com/gpu.product"
LABEL_MEMORY: Final = "nvidia.com/gpu.memory"
GPUS_HEALTHY: Final = "GPUsHealthy"
_MIB: Final = 1 << 20


def make_node(name: str, machine: Machine) -> Object:
    """Return the Node without its status. On a machine with several types of GPU, the label has the most frequent."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    if machine.devices:
        product, memory = Counter((one.name, one.memory) for one in machine.devices).most_common(1)[0][0]
        labels |= {LABEL_PRODUCT: product.replace(" ", "-"), LABEL_MEMORY: str(memory // _MIB)}
        labels |= {"nvidia.com/gpu.count": str(len(machine.devices))}
    return {"apiVersion": NODE.api_version, "kind": NODE.kind, "metadata": {"name": name, "labels": labels}}


def make_node_status(
    former: Object, machine: Machine, lost: Mapping[str, str], held: Container[str], now: datetime
) -> Object:
    """Return the Node's status. The resource is absent if no GPU is known.

    A GPU that failed is not allocatable once its Pods have ended: until then they hold it, and not one of the others.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    amounts = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory // 1024}Ki"}
    conditions = with_condition(list(former.get("conditions") or ()), "Ready", "True", now, "KubeletReady")
    capacity, allocatable = dict(amounts), dict(amounts)
    if machine.devices:
        count = len(machine.devices)
        capacity[NVIDIA_GPU], allocatable[NVIDIA_GPU] = str(count), str(count - sum(uuid not in held for uuid in lost))
        failed = "; ".join(f"{uuid}: {fault}" for uuid, fault in sorted(lost.items()))
        state = ("False", now, GPU_LOST, failed) if lost else ("True", now)
        conditions = with_condition(conditions, GPUS_HEALTHY, *state)
    return {"capacity": capacity, "allocatable": allocatable, "conditions": conditions}
