"""Label selectors in Kubernetes' grammar. Pure.

Grammar (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors): requirements joined
by commas, all of which must hold: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` (exists), `!a` (absent).
`!=` and `notin` also match objects that lack the label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from clusters.base.errors import FieldError, Invalid
from clusters.base.names import label_key_fault, label_value_fault
from clusters.base.redact import truncate

Operator = Literal["in", "notin", "exists", "absent"]

CACHED_SELECTORS = 1024
"""Parsed selectors in the cache: one for each controller and revision of a large platform."""

SHOWN = 100
"""Characters of a selector in a message."""

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_PRESENCE = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s=!()]+)$")
_PUNCTUATION = re.compile(r"[(),]")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the requirement."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return (value is not None) == (self.operator == "exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold. A selector without requirements matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


@lru_cache(maxsize=CACHED_SELECTORS)
def parse_selector(text: str) -> Selector:
    """Return the selector in `text`; an empty text matches everything. Raises Invalid with the faulty requirement.

    Example:
        parse_selector("app=iris,tier in (a,b),!debug").matches({"app": "iris", "tier": "a"})  # True
    """
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part.strip(), text) for part in _split(text)))


def selector_for(labels: Mapping[str, str]) -> str:
    """Return the selector text for `matchLabels`: every label must be equal."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _split(text: str) -> list[str]:
    """Return the parts between the commas outside of parentheses.

    A comma is inside of parentheses when the next parenthesis after it closes.
    """
    parts: list[str] = []
    end, following = len(text), ""
    for match in reversed(list(_PUNCTUATION.finditer(text))):
        if match[0] != ",":
            following = match[0]
        elif following != ")":
            parts.append(text[match.end() : end])
            end = match.start()
    parts.append(text[:end])
    return parts[::-1]


def _requirement(part: str, text: str) -> Requirement:
    requirement = _parse(part)
    if requirement is None:
        raise _invalid(text, f"cannot read {part[:SHOWN]!r}: write a=b, a!=b, a in (b,c), a notin (b,c), a or !a")
    faults = [label_key_fault(requirement.key), *(label_value_fault(value) for value in requirement.values)]
    for fault in faults:
        if fault:
            raise _invalid(text, f"in {part[:SHOWN]!r}: {fault}")
    return requirement


def _parse(part: str) -> Requirement | None:
    if match := _SET.match(part):
        operator: Operator = "in" if match["operator"] == "in" else "notin"
        return Requirement(match["key"], operator, frozenset(value.strip() for value in match["values"].split(",")))
    if match := _EQUALITY.match(part):
        return Requirement(match["key"], "notin" if match["operator"] == "!=" else "in", frozenset({match["value"]}))
    if match := _PRESENCE.match(part):
        return Requirement(match["key"], "absent" if match["absent"] else "exists")
    return None


def _invalid(text: str, message: str) -> Invalid:
    return Invalid(f"label selector {truncate(text, SHOWN)!r}", [FieldError("labelSelector", message)])
