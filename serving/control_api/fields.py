"""Field selectors: `metadata.name=x,involvedObject.uid!=y`, over any path of strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clusters.base.objects import Object
from serving.control_api.status import MalformedRequest

FIELDS = ("metadata.name", "metadata.namespace", "status.phase", "spec.nodeName", "type", "reason")
"""Fields that can be selected: those of Kubernetes for the served kinds."""

SHOWN = 100
"""Characters of a term in a message."""


def parse_field_selector(text: str) -> Callable[[Object], bool]:
    """Return a predicate over objects. Raises MalformedRequest for a field that cannot be selected."""
    terms = [_term(term.strip()) for term in text.split(",") if term.strip()]
    return lambda obj: all((_read(obj, path) == value) is equal for path, value, equal in terms)


def _term(term: str) -> tuple[str, str, bool]:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = term.partition(operator)
        if found:
            if path not in FIELDS and not path.startswith("involvedObject."):
                raise MalformedRequest(
                    f"fieldSelector {path[:SHOWN]!r} is not supported: use one of {', '.join(FIELDS)}"
                )
            return path, value, equal
    raise MalformedRequest(f"fieldSelector {term[:SHOWN]!r} has no operator: write FIELD=VALUE")


def _read(obj: Object, path: str) -> str:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
