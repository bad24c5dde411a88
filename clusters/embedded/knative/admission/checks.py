"""What the admission rules are written with: a collector of faults that reads values of any type without raising.

Bad input is data here: a list where a map belongs is a fault at its path, never an exception. All faults of an object
are told together.
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
    """The faults found so far, and which of Knative's feature flags are on."""

    def __init__(self, features: frozenset[str]) -> None:
        self.features = features
        self.found: list[FieldError] = []

    def add(self, path: str, message: str) -> None:
        """Record one fault."""
        self.found.append(FieldError(path, message))

    def map(self, path: str, value: object) -> Mapping[str, Any]:
        """The value as a map; nothing at all is an empty one."""
        if value is None or (isinstance(value, dict) and all(isinstance(key, str) for key in value)):
            return value or {}
        self.add(path, f"{_shown(value)} is not allowed: a map is expected")
        return {}

    def items(self, path: str, value: object) -> list[tuple[str, Any]]:
        """The value as a list: (path, item) of each; nothing at all is an empty one."""
        if value is None:
            return []
        if isinstance(value, list):
            return [(f"{path}[{number}]", item) for number, item in enumerate(value)]
        self.add(path, f"{_shown(value)} is not allowed: a list is expected")
        return []

    def text(self, path: str, value: object) -> str:
        """The value as text; nothing at all is the empty one."""
        if value is None or isinstance(value, str):
            return value or ""
        self.add(path, f"{_shown(value)} is not allowed: a text is expected, in quotes")
        return ""

    def texts(self, path: str, value: object) -> list[str]:
        """The value as a list of texts."""
        return [self.text(where, item) for where, item in self.items(path, value)]

    def boolean(self, path: str, value: object) -> bool | None:
        """The value as true or false, None for nothing at all."""
        if value is None or isinstance(value, bool):
            return value
        self.add(path, f"{_shown(value)} is not allowed: true or false is expected")
        return None

    def integer(self, path: str, value: object, low: int, high: int) -> int | None:
        """The value as a whole number in bounds (both included), None for nothing at all or a fault."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.add(path, f"{_shown(value)} is not allowed: a whole number is expected")
            return None
        if not low <= value <= high:
            self.add(path, f"expected {low} <= {value} <= {high}")
            return None
        return value

    def one_of(self, path: str, obj: Mapping[str, Any], names: Sequence[str], *, required: bool = True) -> None:
        """Exactly one of these fields is set (at most one when not `required`)."""
        present = [name for name in names if obj.get(name) is not None]
        if len(present) > 1:
            self.add(path, f"expected exactly one, got both: {', '.join(present)}")
        elif required and not present:
            self.add(path, f"expected exactly one, got neither: {', '.join(names)}")

    def closed(
        self,
        path: str,
        obj: Mapping[str, Any],
        allowed: Iterable[str],
        *,
        flagged: Mapping[str, str] | None = None,
        refused: Iterable[str] = (),
    ) -> None:
        """No other fields than `allowed`, and those of `flagged` (field → feature flag) whose flag is on.

        `refused` are fields that Kubernetes knows and Knative does not let through.
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
                self.add(where, "unknown field: check its spelling and its place")
            elif value not in (None, False, "", [], {}):
                self.add(where, "must not be set: Knative does not allow this field in a revision")

    def dns_1035(self, path: str, name: str) -> None:
        """The name is a DNS label that begins with a letter (RFC 1035), at most 63 characters."""
        if len(name) > LONGEST_LABEL:
            self.add(path, f"{name[:40]!r}… has {len(name)} characters: at most {LONGEST_LABEL} are allowed")
        elif not _DNS_1035.fullmatch(name):
            rule = "use lower-case letters, digits and '-', a letter first and no '-' last"
            self.add(path, f"not a DNS 1035 label: {name!r}: {rule}")

    def quantities(self, path: str, value: object) -> None:
        """A map of resource names to quantities."""
        for resource, amount in self.map(path, value).items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not number and not (isinstance(amount, str) and _QUANTITY.fullmatch(amount)):
                rule = 'write it as in "500m" or "1Gi"'
                self.add(key_path(path, resource), f"{_shown(amount)} is no quantity: {rule}")


def key_path(path: str, key: str) -> str:
    """The path of a map's entry: `spec.limits.cpu`, `metadata.annotations[example.com/key]`."""
    return f"{path}.{key}" if _SIMPLE_KEY.fullmatch(key) else f"{path}[{key}]"


def _shown(value: object) -> str:
    return truncate(repr(value), LONGEST_LABEL)
