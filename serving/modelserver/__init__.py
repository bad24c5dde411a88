"""The model server: serves models over the Open Inference Protocol v2, in a process of its own.

Importing this package imports nothing heavy. `preload` lists the modules that a zygote imports in advance.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["preload"]


def preload(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the modules, in order, that a zygote imports before it forks servers with the arguments `argv`.

    Importing them starts no thread. Without `--format` the engine follows from the suffix of the URI's name or, for a
    local folder, from its files. An engine that cannot be determined in advance is imported after the fork.
    """
    from serving.modelserver.pool.preloading import modules_for

    return modules_for(argv)
