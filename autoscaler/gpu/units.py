"""Resources that are GPUs, their types by the labels of nodes, and the amounts that a Pod requests. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from clusters.base.objects import ANNOTATION_GPU_FRACTION, NVIDIA_GPU, Object, annotations_of
from clusters.base.quantities import parse_part, parse_quantity

Amounts = Mapping[str, int]
"""Units by the name of the resource."""

_GPU: Final = re.compile(
    r"[a-z0-9.-]+/gpu(\.shared)?"  # of all vendors; time slices of NVIDIA
    r"|nvidia\.com/mig-[0-9a-z.-]+"  # mig-1g.10gb, mig-1g.10gb.shared, mig-1g.5gb.me
    r"|amd\.com/[a-z]+_nps[0-9]+"  # partitions: cpx_nps4
    r"|gpu\.intel\.com/(i915|xe)"
    r"|habana\.ai/gaudi",
    re.ASCII,
)
_TYPE_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com": ("nvidia.com/gpu.product",),
    "amd.com": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "gpu.intel.com": ("gpu.intel.com/product",),
}
"""Labels of the vendors' own labellers, by the domain of the resource."""
_CLOUD_LABELS: Final = (
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
)


def is_gpu(resource: str) -> bool:
    """Return whether an extended resource is a GPU, a MIG partition or a share of one.

    Example:
        is_gpu("nvidia.com/mig-1g.10gb")  # True
        is_gpu("nvidia.com/gpumem")       # False: an amount of memory of GPUs
    """
    return _GPU.fullmatch(resource) is not None


def type_of(resource: str, labels: Mapping[str, str]) -> str:
    """Return the type of a node's GPUs, such as `NVIDIA-H100-80GB-HBM3`; empty if no label has it.

    With the strategy `mixed`, NVIDIA's labeller writes a label for each MIG profile: `nvidia.com/mig-1g.10gb.product`.
    """
    return next((labels[name] for name in type_labels(resource) if labels.get(name)), "")


def type_labels(resource: str) -> tuple[str, ...]:
    """Return the labels of nodes that name the type of a resource, the most exact first."""
    vendors = _TYPE_LABELS.get(resource.partition("/")[0], ())
    own = () if resource == NVIDIA_GPU else (f"{resource.removesuffix('.shared')}.product",)
    return (*own, *vendors, *_CLOUD_LABELS)


def read_units(quantity: Any) -> int:
    """Return the whole units of a quantity; 0 for one that is not readable."""
    try:
        return int(parse_quantity(str(quantity)))
    except ValueError:
        return 0


def requested_by(pod: Object) -> Amounts:
    """Return the extended resources that the scheduler reserves for a Pod.

    They are those of all containers and sidecars together, or those of an init container and the sidecars that started
    before it, whichever is more.
    """
    spec = pod.get("spec") or {}
    running: Counter[str] = Counter()  # sidecars first, then all containers
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        amounts = _limits(container)
        if container.get("restartPolicy") == "Always":
            running += amounts
            most |= running
        else:
            most |= running + amounts
    for container in spec.get("containers") or ():
        running += _limits(container)
    return dict(most | running)


def part_of_gpu(pod: Object) -> int:
    """Return the thousandths of a GPU that a Pod or Pod template requests by an annotation; 0 without a valid one."""
    try:
        return parse_part(annotations_of({"metadata": {}, **pod}).get(ANNOTATION_GPU_FRACTION, ""))
    except ValueError:
        return 0


def _limits(container: Object) -> Counter[str]:
    """Return the extended resources of a container; their requests are equal to their limits."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return Counter({name: units for name, text in amounts.items() if "/" in name and (units := read_units(text))})
