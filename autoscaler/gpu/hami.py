"""Shares of GPUs by HAMi: memory and compute of the devices that it divides. Pure.

HAMi's device plugin registers each GPU many times as `nvidia.com/gpu`, and writes the real devices to an annotation of
the Node. Its scheduler writes the shares of a Pod to an annotation of the Pod (HAMi 2.x, `pkg/device`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Final

from autoscaler.gpu.units import Amounts, read_units

MEMORY: Final = "nvidia.com/gpumem"
"""MiB of memory."""
CORES: Final = "nvidia.com/gpucores"
"""Hundredths of the compute of a GPU."""
NODE_ANNOTATION: Final = "hami.io/node-nvidia-register"
"""`[{"id":"GPU-00552014","count":10,"devmem":32768,"devcore":100,"type":"NVIDIA-Tesla V100","health":true}]`"""
POD_ANNOTATION: Final = "hami.io/vgpu-devices-allocated"
"""`GPU-00552014,NVIDIA,3000,30:;`: device, vendor, MiB and hundredths; devices end with `:`, containers with `;`."""


def capacity_of(annotations: Mapping[str, str]) -> Amounts:
    """Return the memory and compute of a Node's healthy devices; nothing for a Node without HAMi."""
    try:
        devices = json.loads(annotations.get(NODE_ANNOTATION, "[]"))
    except (ValueError, RecursionError):
        return {}
    healthy = (
        [one for one in devices if isinstance(one, dict) and one.get("health")] if isinstance(devices, list) else []
    )
    if not healthy:
        return {}
    return {resource: sum(read_units(one.get(key)) for one in healthy)
            for resource, key in ((MEMORY, "devmem"), (CORES, "devcore"))}  # fmt: skip


def held_by(annotations: Mapping[str, str]) -> Amounts:
    """Return the memory and compute that HAMi has given to a Pod; nothing for a Pod of another scheduler."""
    found: Counter[str] = Counter()
    for device in annotations.get(POD_ANNOTATION, "").replace(";", ":").split(":"):
        parts = device.split(",")
        if len(parts) == 4:
            found += Counter({MEMORY: read_units(parts[2]), CORES: read_units(parts[3])})
    return dict(found)
