"""Resource limits of a container as POSIX rlimits of its process.

Memory is bounded by RLIMIT_DATA (private writable memory), not RLIMIT_AS: ONNX Runtime, allocators and GPU drivers
reserve far more address space than they use. RLIMIT_DATA still counts memory that is mapped and never touched (8 MiB of
stack for each thread, the arenas of malloc, the buffers of BLAS), so a process gets `DATA_FACTOR` times its limit and
`DATA_HEADROOM` more: this stops a leak before the machine swaps, and never one that keeps within its limit.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from clusters.base.objects import Object
from clusters.embedded.kubelet.process.errors import BadContainerConfig

Limits = Mapping[int, tuple[int, int]]
"""`resource.RLIMIT_*` → (soft, hard)."""

DATA_FACTOR: Final = 2  # mapped private memory per used memory; malloc arenas and BLAS buffers stay below that
DATA_HEADROOM: Final = 1 << 30  # bytes; e.g. 64 threads of 8 MiB stack, and 512 MiB of interpreter and libraries
OPEN_FILES: Final = 65_536  # a connection is a file, and the usual soft limit is 1024

_SUFFIXES: Final = {
    "": Decimal(1), "m": Decimal("0.001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,2})|([A-Za-z]{0,2}))")


class BadQuantity(BadContainerConfig):
    """Not a quantity of Kubernetes."""


def parse_quantity(text: str) -> Decimal:
    """The number that a Kubernetes quantity (`512Mi`, `1.5G`, `100m`, `1e9`) stands for. Raises BadQuantity."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[3] or "") not in _SUFFIXES:
        raise BadQuantity(f"{text!r} is not a quantity: write a number with Ki, Mi, Gi, k, M, G or m, as in 512Mi")
    return Decimal(match[1]) * Decimal(10) ** int(match[2] or 0) * _SUFFIXES[match[3] or ""]


def limits_of(container: Object) -> Limits:
    """The rlimits of a container's process. Raises BadQuantity."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most_files == resource.RLIM_INFINITY else min(OPEN_FILES, most_files)
    limits = {
        resource.RLIMIT_CORE: (0, 0),  # a core dump holds the model and its requests
        resource.RLIMIT_NOFILE: (files, files),
    }
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    if memory is not None:
        data = int(parse_quantity(str(memory)) * DATA_FACTOR) + DATA_HEADROOM
        limits[resource.RLIMIT_DATA] = (data, data)
    return limits
