"""Every method of the `Cluster` protocol, for tests under faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.base.api import Cluster
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
)  # fmt: skip
from tests.contract.widgets import WIDGET, widget

CALLS: dict[str, Callable[[Cluster], Any]] = {
    "get": lambda cluster: cluster.get(WIDGET, "w", NAMESPACE),
    "list": lambda cluster: cluster.list(WIDGET),
    "create": lambda cluster: cluster.create(WIDGET, widget(NAMESPACE), manager="t"),
    "apply": lambda cluster: cluster.apply(WIDGET, widget(NAMESPACE), manager="t"),
    "patch": lambda cluster: cluster.patch(WIDGET, "w", {}, NAMESPACE, manager="t"),
    "delete": lambda cluster: cluster.delete(WIDGET, "w", NAMESPACE),
    "scale": lambda cluster: cluster.scale(WIDGET, "w", NAMESPACE, 1, manager="t"),
}


def sort_of(call: str) -> str:
    """Which script a call follows."""
    return "list" if call == "list" else "other"
