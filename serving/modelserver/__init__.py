"""The model server: models by the Open Inference Protocol v2, in a process of its own.

Importing this package imports nothing heavy; a composition root asks it what a zygote is to import.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["preload"]


def preload(argv: Sequence[str]) -> tuple[str, ...]:
    """The modules, in order, that a zygote imports before it forks servers with the arguments `argv`.

    Importing them starts no thread. Without `--format` the engine is told by the name that the URI ends in, or, for a
    local folder, by its files; when it cannot be told it is imported after the fork.
    """
    from serving.modelserver.pool.preloading import modules_for

    return modules_for(argv)
