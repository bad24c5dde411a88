"""The table of `spec.resources`: CPU, memory and GPUs of one Pod (see `tables`). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from clusters.base.objects import NVIDIA_GPU
from serving.types import formats
from serving.types.fields import Integer, Number, Quantity, Text
from serving.types.reader import short_repr
from serving.types.schema import rule
from serving.types.tables import Items

CPU, MEMORY = "1", "1Gi"
"""Default resources. One core answers some hundred requests a second of a small model. The memory is enough for an
engine and a model of a few hundred megabytes.
"""
MOST_GPUS: Final = 64
"""GPUs of one Pod; no machine has more."""
LEAST_FRACTION, MOST_FRACTION = 0.001, 0.999
"""A part of a GPU is counted in thousandths."""
NOT_BOTH: Final = "is instead of gpu: omit one of the two"
NVIDIA_ONLY: Final = "is a part of an NVIDIA GPU of one machine: omit gpuResource"
LONGEST_GPU_RESOURCE: Final = 253 + 1 + 63  # a subdomain, '/' and a label
_GPU_RESOURCE: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?"
)
"""This pattern is also in the CustomResourceDefinition, so it uses only features of RE2."""

MOST_GPU_TYPES: Final = 8
LONGEST_GPU_TYPE: Final = 63  # the value of a label
_GPU_TYPE: Final = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")


def gpu_type_fault(name: str) -> str:
    """Check the name of a type of GPU."""
    if _GPU_TYPE.fullmatch(name) and len(name) <= LONGEST_GPU_TYPE:
        return ""
    return f"must be a type of GPU such as NVIDIA-H100-80GB-HBM3, not {short_repr(name)}"


def gpu_resource_fault(name: str) -> str:
    """Check the name of an extended resource."""
    if _GPU_RESOURCE.fullmatch(name):
        return ""
    return f"must be the name of an extended resource such as {NVIDIA_GPU}, not {short_repr(name)}"


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
            f"Name of the GPU's extended resource on the nodes. Default: {NVIDIA_GPU}.",
            formats.matching(_GPU_RESOURCE, gpu_resource_fault, LONGEST_GPU_RESOURCE),
        ),
    ] = ""

    gpu_types: Annotated[
        tuple[str, ...],
        Items(
            "Types of GPU that will do, the best first, as nodes are labelled with them. All types if absent.",
            Text("", formats.matching(_GPU_TYPE, gpu_type_fault, LONGEST_GPU_TYPE)),
            MOST_GPU_TYPES,
        ),
    ] = ()
    gpu_fraction: Annotated[
        float | None,
        Number("Part of one GPU, instead of gpu. Only on one machine.", LEAST_FRACTION, MOST_FRACTION),
    ] = None

    RULES: ClassVar = (
        rule("!has(self.gpuFraction) || !has(self.gpu) || self.gpu == 0", NOT_BOTH, ".gpuFraction"),
        rule("!has(self.gpuFraction) || !has(self.gpuResource)", NVIDIA_ONLY, ".gpuFraction"),
    )

    def faults(self, _: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Check the rules in Python."""
        if self.gpu_fraction and self.gpu:
            yield "gpuFraction", NOT_BOTH
        if self.gpu_fraction and self.gpu_resource:
            yield "gpuFraction", NVIDIA_ONLY

    @property
    def has_gpus(self) -> bool:
        """Return whether each replica has GPUs, or a part of one."""
        return bool(self.gpu or self.gpu_fraction)

    def otherwise(self, default: Resources) -> Resources:
        """Return the resources with those of `default` for absent ones. `gpu` and `gpu_fraction` are one choice."""
        gpus = self if self.has_gpus else default
        return Resources(
            self.cpu or default.cpu,
            self.memory or default.memory,
            gpus.gpu,
            "" if gpus.gpu_fraction else self.gpu_resource or default.gpu_resource,
            self.gpu_types or default.gpu_types,
            gpus.gpu_fraction,
        )

    def amounts(self) -> dict[str, str]:
        """Return the resources by their names in Kubernetes.

        Example:
            Resources("8", "64Gi", 2).amounts()  # {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}
        """
        gpus = {self.gpu_resource or NVIDIA_GPU: str(self.gpu)} if self.gpu else {}
        return {"cpu": self.cpu, "memory": self.memory, **gpus}


NO_RESOURCES: Final = Resources()
DEFAULT_RESOURCES: Final = Resources(CPU, MEMORY)
