"""WarmPools for tests."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import WARM_POOL, Object
from serving.types.warm_pool import WarmPool, read_warm_pool


def pool_object(name: str = "small", **spec: Any) -> Object:
    """A WarmPool as its author writes it."""
    return {
        "apiVersion": WARM_POOL.api_version,
        "kind": WARM_POOL.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def pool(name: str = "small", **spec: Any) -> WarmPool:
    """A checked WarmPool as a cluster has it."""
    obj = pool_object(name, **spec)
    obj["metadata"] |= {"uid": "p1", "generation": 1, "resourceVersion": "1"}
    return read_warm_pool(obj)
