"""Collect the faults of an object, and read values of any type without raising errors.

A value of the wrong type, for example a list instead of a map, is a fault at its path. All faults of an object are
reported together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from clusters.base.errors import FieldError, shown_name
from clusters.base.names import LONGEST_LABEL
from clusters.base.redact import truncate

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(m|u|n|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+)?")


class Faults:
    """The faults found so far, and the feature flags of Knative that are on."""

    def __init__(self, features: frozenset[str]) -> None:
        self.features = features
        self.found: list[FieldError] = []

    def add(self, path: str, message: str) -> None:
        """Record a fault."""
        self.found.append(FieldError(path, message))

    def map(self, path: str, value: object) -> Mapping[str, Any]:
        """Return the value as a map; None is an empty map."""
        if value is None or (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
            return value or {}
        self.add(path, f"{_shown(value)} is not allowed: a map is expected")
        return {}

    def items(self, path: str, value: object) -> list[tuple[str, Any]]:
        """Return the value as a list of (path, item); None is an empty list."""
        if value is None:
            return []
        if isinstance(value, list):
            return [(f"{path}[{number}]", item) for number, item in enumerate(value)]
        self.add(path, f"{_shown(value)} is not allowed: a list is expected")
        return []

    def string(self, path: str, value: object) -> str:
        """Return the value as a string; None is an empty string."""
        if value is None or isinstance(value, str):
            return value or ""
        self.add(path, f"{_shown(value)} is not allowed: a string is expected: put it in quotes")
        return ""

    def strings(self, path: str, value: object) -> list[str]:
        """Return the value as a list of strings."""
        return [self.string(where, item) for where, item in self.items(path, value)]

    def boolean(self, path: str, value: object) -> bool | None:
        """Return the value as a boolean, or None if it is absent or invalid."""
        if value is None or isinstance(value, bool):
            return value
        self.add(path, f"{_shown(value)} is not allowed: a boolean is expected")
        return None

    def integer(self, path: str, value: object, low: int, high: int) -> int | None:
        """Return the value as an integer between `low` and `high`, inclusive, or None if it is absent or invalid."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.add(path, f"{_shown(value)} is not allowed: an integer is expected")
            return None
        if not low <= value <= high:
            self.add(path, f"expected {low} <= {value} <= {high}")
            return None
        return value

    def one_of(self, path: str, obj: Mapping[str, Any], names: Sequence[str], *, required: bool = True) -> None:
        """Require exactly one of these fields, or at most one unless `required`."""
        present = [name for name in names if obj.get(name) is not None]
        if len(present) > 1:
            self.add(path, f"expected exactly one, got both: {', '.join(present)}")
        elif required and not present:
            self.add(path, f"expected exactly one, got neither: {', '.join(names)}")

    def known_fields(
        self,
        path: str,
        obj: Mapping[str, Any],
        allowed: Iterable[str],
        *,
        flagged: Mapping[str, str] | None = None,
        refused: Iterable[str] = (),
    ) -> None:
        """Reject all fields but `allowed`, and but those of `flagged` (field → feature flag) whose flag is on.

        `refused` are fields of Kubernetes that Knative does not allow.
        """
        flagged = flagged or {}
        for field, value in obj.items():
            if field in allowed:
                continue
            name = shown_name(field)
            where = f"{path}.{name}" if path else name
            if field in flagged:
                if flagged[field] not in self.features:
                    self.add(where, f"must not be set: Knative's feature {flagged[field]} is off (config-features)")
            elif field not in refused:
                self.add(where, "unknown field: check its spelling and its position")
            elif value not in (None, False, "", [], {}):
                self.add(where, "must not be set: Knative does not allow this field in a revision")

    def dns_1035(self, path: str, name: str) -> None:
        """Require a DNS label that begins with a letter (RFC 1035), of at most 63 characters."""
        if len(name) > LONGEST_LABEL:
            self.add(path, f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_LABEL} are allowed")
        elif not _DNS_1035.fullmatch(name):
            rule = "use lower-case letters, digits and '-', beginning with a letter and not ending with '-'"
            self.add(path, f"not a DNS 1035 label: {name!r}: {rule}")

    def quantities(self, path: str, value: object) -> None:
        """Require a map of resource names to quantities."""
        for resource, amount in self.map(path, value).items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number and not (isinstance(amount, str) and _QUANTITY.fullmatch(amount)):
                rule = 'use a form like "500m" or "1Gi"'
                self.add(key_path(path, resource), f"{_shown(amount)} is not a quantity: {rule}")


def key_path(path: str, key: str) -> str:
    """Return the path of a map's entry: `spec.limits.cpu`, `metadata.annotations[example.com/key]`."""
    return f"{path}.{key}" if _SIMPLE_KEY.fullmatch(key) else f"{path}[{key}]"


def _shown(value: object) -> str:
    return truncate(repr(value), LONGEST_LABEL)
