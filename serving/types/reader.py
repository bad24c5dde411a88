"""Read the fields of a JSON object one by one, and collect every fault with its path.

A field that is null counts as absent, as in Kubernetes. Fields that were not read are unknown; `close` refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from clusters.base.durations import format_duration, parse_duration
from clusters.base.errors import FieldError
from clusters.base.redact import truncate

Fault = Callable[[str], str]
"""Checks a text: returns its fault, empty if it is valid."""

LONGEST_SHOWN = 60
"""Characters of a refused value that a message repeats."""

CLOSE = 0.7
"""Minimum similarity of an unknown name to a suggested one (difflib's ratio)."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to `name`, ignoring case; empty when none is similar.

    Example:
        >>> closest("storageURI", ["storage", "storageUri"])
        'storageUri'
    """
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), folded, n=1, cutoff=CLOSE)
    return folded[found[0]] if found else ""


def short_repr(value: Any) -> str:
    """Return any value as one short line for messages.

    Example:
        >>> short_repr({"a": 1}), short_repr(True), short_repr("x")
        ('a mapping', 'true', "'x'")
    """
    if isinstance(value, int) and abs(value) >= 2**63:
        return "a number beyond 64 bits"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    words = "true" if value is True else "false" if value is False else repr(value)
    return truncate(words, LONGEST_SHOWN)


class Fields:
    """A reader of the mapping at `path`. Faults are added to `errors`, which all readers of an object share.

    Each method returns the default of its field after a fault, so that reading continues. Call `close` at the end.
    """

    def __init__(self, value: Any, path: str, errors: list[FieldError]) -> None:
        self.path = path
        self.errors = errors
        self._known: dict[str, None] = {}
        self._value: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        if value is not None and not isinstance(value, Mapping):
            self.refuse("", f"must be a mapping, not {short_repr(value)}")

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def refuse(self, name: str, message: str) -> None:
        """Add a fault of the field `name`; with an empty name, of the mapping itself."""
        self.errors.append(FieldError(self.at(name), message))

    def raw(self, name: str) -> Any:
        """Return the value without a check; None when it is absent."""
        self._known[name] = None
        return self._value.get(name)

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self.raw(name) is not None

    def text(self, name: str, fault: Fault, default: str = "", required: bool = False) -> str:
        """Read a text that `fault` accepts."""
        value = self.raw(name)
        if value is None:
            if required:
                self.refuse(name, "is required")
            return default
        if not isinstance(value, str):
            hint = f": put it in quotes, as in {name}: {str(value)!r}" if isinstance(value, int | float) else ""
            self.refuse(name, f"must be a text, not {short_repr(value)}{hint if len(hint) < LONGEST_SHOWN else ''}")
            return default
        found = fault(value)
        if found:
            self.refuse(name, found)
            return default
        return value

    def integer(self, name: str, default: int, least: int, most: int, required: bool = False) -> int:
        """Read a whole number from `least` to `most`. As in Kubernetes, 2.0 is not one."""
        value = self.raw(name)
        if value is None:
            if required:
                self.refuse(name, f"is required: a whole number from {least} to {most}")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}, not {short_repr(value)}")
            return default
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """Read a finite number from `least` to `most`."""
        value = self.raw(name)
        if value is None:
            return default
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not least <= value <= most:  # NaN fails this comparison
            self.refuse(name, f"must be a number from {least:g} to {most:g}, not {short_repr(value)}")
            return default
        return float(value)

    def seconds(self, name: str, default: float, least: float, most: float = math.inf, whole: bool = False) -> float:
        """Read a duration such as `10m`, and return seconds. `whole`: only whole seconds, as some fields of Knative."""
        value = self.raw(name)
        if value is None:
            return default
        try:
            if not isinstance(value, str):
                raise ValueError("must be a text such as '300s', '10m' or '1h30m'")
            seconds = parse_duration(value)
        except ValueError as error:
            self.refuse(name, f"{error}, not {short_repr(value)}")
            return default
        if not least <= seconds <= most:
            bounds = f"at least {format_duration(least)}"
            bounds += f" and at most {format_duration(most)}" if math.isfinite(most) else ""
            self.refuse(name, f"must be {bounds}, not {short_repr(value)}")
            return default
        if whole and seconds != int(seconds):
            self.refuse(name, f"must be in whole seconds, not {short_repr(value)}")
            return default
        return seconds

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Read one of a few texts."""
        allowed = " or ".join(choices)
        return self.text(
            name, lambda value: "" if value in choices else f"must be {allowed}, not {short_repr(value)}", default
        )

    def flag(self, name: str) -> bool:
        """Read true or false; an absent field is false."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"must be true or false, not {short_repr(value)}")
        return value is True

    def child(self, name: str) -> Fields:
        """Return a reader of the mapping `name`, which is empty when absent. Close it, too."""
        return Fields(self.raw(name), self.at(name), self.errors)

    def part(self, name: str, required: bool = False) -> Fields | None:
        """Return a reader of the mapping `name`; None when it is absent or not a mapping. Close it, too."""
        if not self.has(name):
            if required:
                self.refuse(name, "is required")
            return None
        fields = self.child(name)
        return fields if isinstance(self.raw(name), Mapping) else None

    def items(self, name: str, most: int) -> Iterator[Fields]:
        """Return readers of the mappings in the list `name`, each closed after its iteration. Refuse empty lists."""
        value = self.raw(name)
        if value is None:
            return
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            given = f"{len(value)} entries" if isinstance(value, list) else short_repr(value)
            self.refuse(name, f"must be a list of 1 to {most} entries, not {given}: omit it to have none")
            return
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                self.refuse(f"{name}[{index}]", f"must be a mapping, not {short_repr(item)}")
                continue
            fields = Fields(item, self.at(f"{name}[{index}]"), self.errors)
            yield fields
            fields.close()

    def close(self, later: Mapping[str, str] | None = None) -> None:
        """Refuse fields that were not read. `later` has fields of later releases, each with its subject."""
        later = later or {}
        for name, value in self._value.items():
            if name in self._known or value is None:
                continue
            if name in later:
                self.refuse(name, f"not supported yet: {later[name]}")
                continue
            similar = closest(str(name), [*self._known, *later])
            hint = f"; did you mean {similar}?" if similar else ""
            self.refuse(short_repr(name)[1:-1], f"unknown field{hint}")
