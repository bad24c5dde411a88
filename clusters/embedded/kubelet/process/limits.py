"""Resource limits of a container as POSIX rlimits of its process.

Memory is limited by RLIMIT_DATA (private writable memory), not RLIMIT_AS: ONNX Runtime, allocators and GPU drivers
reserve far more address space than they use. RLIMIT_DATA also counts memory that is mapped and never touched: 8 MiB of
stack for each thread, the arenas of malloc, the buffers of BLAS. So the rlimit is `DATA_FACTOR` times the container's
limit plus `DATA_HEADROOM`. It stops a leak before the machine swaps, and never a process that respects its limit.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from typing import Final

from clusters.base.objects import Object
from clusters.base.quantities import parse_quantity
from clusters.embedded.kubelet.process.errors import CreateContainerConfigError

ProcessLimits = Mapping[int, tuple[int, int]]
"""Map `resource.RLIMIT_*` to (soft, hard)."""

DATA_FACTOR: Final = 2  # mapped private memory per used memory; malloc arenas and BLAS buffers need less
DATA_HEADROOM: Final = 1 << 30  # bytes; e.g. 64 threads of 8 MiB stack, and 512 MiB of interpreter and libraries
LARGEST_LIMIT: Final = sys.maxsize  # the module `resource` accepts no larger one
OPEN_FILES: Final = 65_536  # a connection is a file, and the usual soft limit is 1024


def limits_of(container: Object) -> ProcessLimits:
    """Return the rlimits of a container's process. Raises CreateContainerConfigError for an invalid memory limit."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most_files == resource.RLIM_INFINITY else min(OPEN_FILES, most_files)
    limits = {
        resource.RLIMIT_CORE: (0, 0),  # a core dump contains the model and its requests
        resource.RLIMIT_NOFILE: (files, files),
    }
    memory = memory_limit(container)
    if memory:
        data = min(memory * DATA_FACTOR + DATA_HEADROOM, LARGEST_LIMIT)
        limits[resource.RLIMIT_DATA] = (data, data)
    return limits


def memory_limit(container: Object) -> int:
    """Return the memory limit of a container in bytes, 0 for none. Raises CreateContainerConfigError."""
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    try:
        return 0 if memory is None else int(parse_quantity(str(memory)))
    except ValueError as error:
        raise CreateContainerConfigError(f"invalid memory limit {memory!r}: it {error}") from error
