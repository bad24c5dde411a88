"""Label selectors in Kubernetes' grammar: parsed once, matched often. Pure; every adapter and controller may use it.

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

Operator = Literal["in", "notin", "exists", "absent"]

CACHED_SELECTORS = 1024
"""How many parsed selectors are kept: one for each controller and revision of a large platform."""

SHOWN = 100
"""Characters of a selector that a message repeats."""

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_PRESENCE = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s=!()]+)$")
_PUNCTUATION = re.compile(r"[(),]")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` meet it."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return (value is not None) == (self.operator == "exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold; none at all matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


@lru_cache(maxsize=CACHED_SELECTORS)
def parse_selector(text: str) -> Selector:
    """The selector that `text` spells; the empty text matches everything. Raises Invalid naming the bad requirement."""
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part.strip(), text) for part in _split(text)))


def selector_for(labels: Mapping[str, str]) -> str:
    """The selector text that `matchLabels` stands for: every label equal."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _split(text: str) -> list[str]:
    """The parts between commas outside of parentheses, in one walk: a comma whose next parenthesis closes is inside."""
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
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "…"
    return Invalid(f"label selector {shown!r}", [FieldError("labelSelector", message)])
