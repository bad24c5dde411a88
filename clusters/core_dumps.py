"""Core dumps: a process of ours leaves none, since its memory holds tokens, keys of stores, models and requests."""

from __future__ import annotations

import resource


def allow_none() -> None:
    """From now on neither this process nor one that it starts writes its memory to a file when it crashes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
