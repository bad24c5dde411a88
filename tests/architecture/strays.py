"""Errors outside of the one tree, in the modules that the command line names: one per line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable

from clusters.base.errors import KnodelError


def strays(names: Iterable[str]) -> list[str]:
    """Public exceptions of these modules, which are imported, that are no KnodelError."""
    found = []
    for name in names:
        for value in vars(importlib.import_module(name)).values():
            is_error = isinstance(value, type) and issubclass(value, Exception) and value.__module__ == name
            if is_error and not value.__name__.startswith("_") and not issubclass(value, KnodelError):
                found.append(f"{name}.{value.__name__}")
    return found


if __name__ == "__main__":
    print("\n".join(strays(sys.argv[1:])))
