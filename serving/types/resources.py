"""The table of `spec.resources`: CPU, memory and GPUs of one Pod (see `tables`). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from serving.types import formats
from serving.types.fields import Integer, Quantity, Text
from serving.types.reader import short_repr

CPU, MEMORY = "1", "1Gi"
"""Default resources. One core answers some hundred requests a second of a small model. The memory is enough for an
engine and a model of a few hundred megabytes.
"""
MOST_GPUS: Final = 64
"""GPUs of one Pod; no machine has more."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
LONGEST_GPU_RESOURCE: Final = 253 + 1 + 63  # a subdomain, '/' and a label
_GPU_RESOURCE: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?"
)
"""This pattern is also in the CustomResourceDefinition, so it uses only features of RE2."""


def gpu_resource_fault(name: str) -> str:
    """Check the name of an extended resource."""
    if _GPU_RESOURCE.fullmatch(name):
        return ""
    return f"must be the name of an extended resource such as {GPU_RESOURCE}, not {short_repr(name)}"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of each replica.

    Requests and limits are equal. The quantities are in canonical form, and empty if absent. `gpu` 0 is absent.
    """

    cpu: Annotated[str, Quantity("CPU cores.")] = ""
    memory: Annotated[str, Quantity("Memory in bytes.")] = ""
    gpu: Annotated[int, Integer("Number of GPUs, which each replica has for itself.", 0, MOST_GPUS)] = 0
    gpu_resource: Annotated[
        str,
        Text(
            f"Name of the GPU's extended resource on the nodes. Default: {GPU_RESOURCE}.",
            formats.matching(_GPU_RESOURCE, gpu_resource_fault, LONGEST_GPU_RESOURCE),
        ),
    ] = ""

    def otherwise(self, default: Resources) -> Resources:
        """Return the resources with those of `default` for absent ones."""
        return Resources(
            self.cpu or default.cpu,
            self.memory or default.memory,
            self.gpu or default.gpu,
            self.gpu_resource or default.gpu_resource,
        )

    def amounts(self) -> dict[str, str]:
        """Return the resources by their names in Kubernetes.

        Example:
            Resources("8", "64Gi", 2).amounts()  # {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}
        """
        gpus = {self.gpu_resource or GPU_RESOURCE: str(self.gpu)} if self.gpu else {}
        return {"cpu": self.cpu, "memory": self.memory, **gpus}


NO_RESOURCES: Final = Resources()
DEFAULT_RESOURCES: Final = Resources(CPU, MEMORY)
