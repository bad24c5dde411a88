"""Core dumps: a process of ours writes none, since its memory holds tokens, keys of stores, models and requests.

A collector that the machine pipes core dumps to (`|` in kernel.core_pattern) is asked nevertheless (core(5)): that of
systemd keeps nothing of a process with this limit, others go by their own settings.
"""

from __future__ import annotations

import resource


def allow_none() -> None:
    """From now on neither this process nor one that it starts writes its memory to a file when it crashes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
