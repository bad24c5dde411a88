"""A mapping of an object, and the faults of its fields, each with its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from clusters.base.errors import FieldError
from clusters.base.redact import truncate

Fault = Callable[[str], str]
"""Checks a text: returns its fault, empty if it is valid."""
LONGEST_SHOWN: Final = 60
"""Characters of a refused value that a message repeats."""
CLOSE: Final = 0.7
"""Minimum similarity of an unknown name to a suggested one (difflib's ratio)."""


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


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to `name`, ignoring case; empty when none is similar.

    Example:
        >>> closest("storageURI", ["storage", "storageUri"])
        'storageUri'
    """
    folded = {one.casefold(): one for one in known}
    found = get_close_matches(name.casefold(), folded, n=1, cutoff=CLOSE)
    return folded[found[0]] if found else ""


class Reader:
    """The mapping `given` at `path`. Faults are added to `errors`, which all readers of an object share."""

    __slots__ = ("errors", "given", "path")

    def __init__(self, given: Mapping[str, Any], path: str, errors: list[FieldError]) -> None:
        self.given = given
        self.path = path
        self.errors = errors

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def refuse(self, name: str, message: str) -> None:
        """Add a fault of the field `name`; with an empty name, of the mapping itself."""
        self.errors.append(FieldError(self.at(name), message))

    def refuse_unknown(self, name: object, known: Iterable[str]) -> None:
        """Add the fault of a field that does not exist, with the closest known name."""
        similar = closest(str(name), known)
        self.refuse(short_repr(name)[1:-1], f"unknown field{f'; did you mean {similar}?' if similar else ''}")
