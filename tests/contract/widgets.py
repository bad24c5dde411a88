"""The kind of the contract tests: a custom resource with arbitrary fields, so lists are atomic on all clusters."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import Kind, Object

WIDGET = Kind("contract.knodel.dev", "v1", "Widget", "widgets", scale=True)


def widget(namespace: str, name: str = "w", *, spec: Any = None, **metadata: Any) -> Object:
    """Return a Widget for a request."""
    obj: Object = {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
    }
    if spec is not None:
        obj["spec"] = spec
    return obj


def fields_of(obj: Object, manager: str) -> Any:
    """Return the FieldsV1 of a manager, or None when it owns nothing."""
    entries = [entry for entry in obj["metadata"]["managedFields"] if entry["manager"] == manager]
    return entries[0]["fieldsV1"] if entries else None
