"""Reads the fields of a JSON object one by one and gathers every fault with its path; used by the validation.

A field that is null counts as absent, as in Kubernetes. What nobody asked for is unknown, and refused by `close`.
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
"""Says what is wrong with a text; empty when nothing is."""

LONGEST_SHOWN = 60
"""Characters of a refused value that a message repeats."""

CLOSE = 0.7
"""How alike an unknown name must be to a known one to be suggested (difflib's ratio)."""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, without regard to case; empty when none is like it.

    Example:
        >>> closest("storageURI", ["storage", "storageUri"])
        'storageUri'
    """
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), folded, n=1, cutoff=CLOSE)
    return folded[found[0]] if found else ""


def show(value: Any) -> str:
    """A value as a message repeats it: one short line, whatever it is."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return "a number beyond 64 bits"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    words = "true" if value is True else "false" if value is False else repr(value)
    return truncate(words, LONGEST_SHOWN)


class Fields:
    """The fields of one mapping at `path`; faults go to `errors`, which all readers of an object share."""

    def __init__(self, value: Any, path: str, errors: list[FieldError]) -> None:
        self.path = path
        self.errors = errors
        self._asked: dict[str, None] = {}
        self._value: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        if value is not None and not isinstance(value, Mapping):
            self.refuse("", f"must be a mapping, not {show(value)}")

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def refuse(self, name: str, message: str) -> None:
        """Record a fault of the field `name` (empty: of the mapping itself)."""
        self.errors.append(FieldError(self.at(name), message))

    def raw(self, name: str) -> Any:
        """The value as it is; None when absent."""
        self._asked[name] = None
        return self._value.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.raw(name) is not None

    def text(self, name: str, fault: Fault, default: str = "", required: bool = False) -> str:
        """A text that `fault` finds nothing wrong with."""
        value = self.raw(name)
        if value is None:
            if required:
                self.refuse(name, "is required")
            return default
        if not isinstance(value, str):
            hint = f": put it in quotes, as in {name}: {str(value)!r}" if isinstance(value, int | float) else ""
            self.refuse(name, f"must be a text, not {show(value)}{hint if len(hint) < LONGEST_SHOWN else ''}")
            return default
        found = fault(value)
        if found:
            self.refuse(name, found)
            return default
        return value

    def integer(self, name: str, default: int, least: int, most: int, required: bool = False) -> int:
        """A whole number within bounds; 2.0 is none, as in Kubernetes."""
        value = self.raw(name)
        if value is None:
            if required:
                self.refuse(name, f"is required: a whole number from {least} to {most}")
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}, not {show(value)}")
            return default
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A finite number within bounds."""
        value = self.raw(name)
        if value is None:
            return default
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not least <= value <= most:  # NaN is within no bounds
            self.refuse(name, f"must be a number from {least:g} to {most:g}, not {show(value)}")
            return default
        return float(value)

    def seconds(self, name: str, default: float, least: float, most: float = math.inf, whole: bool = False) -> float:
        """A duration within bounds, in seconds; with `whole` nothing finer than a second, as Knative wants some."""
        value = self.raw(name)
        if value is None:
            return default
        try:
            if not isinstance(value, str):
                raise ValueError("must be a text such as '300s', '10m' or '1h30m'")
            seconds = parse_duration(value)
        except ValueError as error:
            self.refuse(name, f"{error}, not {show(value)}")
            return default
        if not least <= seconds <= most:
            bounds = f"at least {format_duration(least)}"
            bounds += f" and at most {format_duration(most)}" if math.isfinite(most) else ""
            self.refuse(name, f"must be {bounds}, not {show(value)}")
            return default
        if whole and seconds != int(seconds):
            self.refuse(name, f"must be in whole seconds, not {show(value)}")
            return default
        return seconds

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of a few texts."""
        allowed = " or ".join(choices)
        return self.text(
            name, lambda value: "" if value in choices else f"must be {allowed}, not {show(value)}", default
        )

    def flag(self, name: str) -> bool:
        """True, false, or absent, which is false."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"must be true or false, not {show(value)}")
        return value is True

    def child(self, name: str) -> Fields:
        """The mapping under `name`, empty when absent; close it too."""
        return Fields(self.raw(name), self.at(name), self.errors)

    def part(self, name: str, required: bool = False) -> Fields | None:
        """The mapping under `name`; None when it is absent, or refused because it is none. Close it too."""
        if not self.has(name):
            if required:
                self.refuse(name, "is required")
            return None
        fields = self.child(name)
        return fields if isinstance(self.raw(name), Mapping) else None

    def items(self, name: str, most: int) -> Iterator[Fields]:
        """The mappings of the list under `name`, each closed after its turn; an empty list is refused."""
        value = self.raw(name)
        if value is None:
            return
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            given = f"{len(value)} entries" if isinstance(value, list) else show(value)
            self.refuse(name, f"must be a list of 1 to {most} entries, not {given}; null or nothing is none")
            return
        for index, item in enumerate(value):
            if not isinstance(item, Mapping):
                self.refuse(f"{name}[{index}]", f"must be a mapping, not {show(item)}")
                continue
            fields = Fields(item, self.at(f"{name}[{index}]"), self.errors)
            yield fields
            fields.close()

    def close(self, later: Mapping[str, str] | None = None) -> None:
        """Refuse what nobody asked for; `later` says why a field that is known cannot be used yet."""
        later = later or {}
        for name, value in self._value.items():
            if name in self._asked or value is None:
                continue
            if name in later:
                self.refuse(name, f"not supported yet: {later[name]}")
                continue
            close = closest(str(name), [*self._asked, *later])
            hint = f"; did you mean {close}?" if close else ""
            self.refuse(show(name)[1:-1], f"unknown field{hint}")
