"""Disable core dumps: the memory of our processes holds tokens, storage keys, models and requests.

The kernel pipes a core dump to a collector (`|` in kernel.core_pattern) despite the limit, see core(5). systemd's
collector discards the dump of a process with this limit; other collectors follow their own settings.
"""

from __future__ import annotations

import resource


def allow_none() -> None:
    """Disable core dumps of this process and of the processes that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
